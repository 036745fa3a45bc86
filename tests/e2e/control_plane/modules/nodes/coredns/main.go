// CoreDNS with the plugins that a cluster's own names need, and nothing else.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// Directives register themselves in the order of a generated list that names every plugin there is.
func init() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes", "template"}
}

func main() {
	coremain.Run()
}
