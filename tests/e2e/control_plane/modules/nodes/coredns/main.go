// CoreDNS with the plugins that a cluster's own names need, and nothing else.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// Directives register themselves in the order of a generated list that names every plugin there is.
func init() {
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "kubernetes"}
}

func main() {
	coremain.Run()
}
