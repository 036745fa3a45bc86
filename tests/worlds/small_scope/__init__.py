"""Every history of a very small cluster under the real controller: `python -m tests.worlds.small_scope`.

Random histories try some orders of what happens; here all of them are tried, as far as the scope reaches: two jobs,
three nodes, two serving pods, one controller that restarts. Between any two turns of the controller everything else
may happen: a watch shows an event or is late by two, a kubelet starts or ends a pod, a serving pod comes, a plan
begins or is published, trainers are evicted ahead of it, a write takes effect, is answered or goes wrong, a time has
come, the lease is lost, the controller crashes.

- `cluster`: the cluster as values, and what may happen to it by itself.
- `api_server`: what a write of the controller does to it, and what its answer shows.
- `desk`: the controller without tasks: what happens to it, and the turn that it takes then.
- `memories`: what it remembers, as values.
- `automaton`: the controller as an automaton: each memory and each turn is found once.
- `request_rules`: the rules that each request must keep, judged by what the controller could know.
- `rest_rules`: what must be so once nothing happens any more.
- `space`, `search`: the states of a scene and the steps between them; visits every state once, and finds what is
  never at rest.
- `scenes`: what there is and what happens in each scene.

The controller is not changed and nothing of it is replaced: its state machine, its plan cycle and its evictions ahead
of a plan are those of a cluster; only who calls them is another one. Its plans come from
`tests.worlds.histories.remembered_plans`. The cache does what the mirror of `edl.kube` does: each answer is shown
before the controller hears of it, the newer version wins, and an answer that was lost shows nothing. The clocks stand
still: that time passes means that all has come that was waited for.

Sources of the idea: Anvil (Sun et al., OSDI 2024) states the property "the desired state is reached, and then stays"
for Kubernetes controllers and proves it. Kamera explores the orders and stale reads of Go controllers in simulation.
"""
