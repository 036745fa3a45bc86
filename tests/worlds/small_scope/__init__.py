"""Every history of a very small cluster under the real controller: `python -m tests.worlds.small_scope`.

Random histories try some orders of what happens; here all of them are tried, as far as the scope reaches: two jobs,
three nodes, two serving pods, one controller that restarts. Between any two steps of the controller and after each of
its writes everything else may happen: a watch shows an event or is late by two, a kubelet starts or ends a pod, a
serving pod comes, a write goes wrong, the lease is lost, the controller crashes.

- `cluster`: the cluster as values, and what may happen to it by itself.
- `api_server`: what a write of the controller does to it.
- `automaton`: the controller as an automaton: what it does next follows from what it remembers and what it was given.
- `round_rules`: the rules that each round must keep, judged by what the controller could know.
- `rest_rules`: what must be so once nothing happens any more.
- `search`: visits every state once, and finds what is never at rest.
- `scenes`: what there is and what happens in each scene.

The controller is not changed and nothing of it is replaced: its ports are those of the tests, and its plans come from
`tests.worlds.histories.remembered_plans`. Its rounds are run for real, once for each situation.

Sources of the idea: Anvil (Sun et al., OSDI 2024) states the property "the desired state is reached, and then stays"
for Kubernetes controllers and proves it. Kamera explores the orders and stale reads of Go controllers in simulation.
"""
