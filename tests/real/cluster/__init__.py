"""A Kubernetes cluster with real kubelets and containers on the machine at hand, for what kwok's pods only pretend.

Two nodes (kubelet, containerd, CNI), kube-proxy, CoreDNS and a whole control plane run in one set of namespaces; the
end of one process ends all of it, and nothing stays on the machine. It needs root and a few Debian packages (see
`needs`), and one runs at a time. A test takes the session's cluster from the fixture `real_cluster`:

    cluster.kubectl("create", "-f", "job.yaml")       what kubectl printed; ControlPlaneError if it failed
    cluster.kube                                      a client: get, list, create, patch, wait_until(...)
    cluster.build_image("edl.test/mine:1", context=FOLDER, base=TRAINER_IMAGE, requirements=["numpy"])
                                                      a Dockerfile built offline by buildah, and brought to all nodes
    cluster.import_image(ARCHIVE)                     a docker-archive brought to all nodes
    cluster.exec("pod", "sh", "-c", "...")            what a command in a container printed
    cluster.kill_container("pod")                     SIGKILL for the first process of a container
    cluster.stop_kubelet("node-1"), start_kubelet     the node is NotReady 8 s later; its containers run on
    cluster.on_node("node-1", "mount", ...)           a program of this machine, among the node's mounts
    cluster.memory_bytes(), cluster.logs(), cluster.kubeconfig, cluster.nodes

Images on the nodes of that cluster: `BASE_IMAGE` (Debian with python3), `CONTROLLER_IMAGE` and `TRAINER_IMAGE`, named
in `images`. None can be pulled: a pod's image has a tag other than `latest`, or says `imagePullPolicy: IfNotPresent`.
`RealCluster.start(FOLDER, specs=...)` starts another shape of cluster, for instance smaller nodes.

The fixture `controller` is the same cluster with edl's controller installed and a default StorageClass: a job with a
master needs a volume for its journal, `mission.Journal`.

While writing a test, keep one running (`make real-cluster`) and say `EDL_REAL_CLUSTER=.real-cluster`: the fixture
then uses that one as it is, with the images that were imported when it was started.
"""
