"""The worlds and builders that several tests share, one module each.

Builders of single objects:

- `builders`: nodes, jobs, serving pods and snapshots of the model, with defaults. Used by nearly all tests.
- `raw_objects`: Kubernetes objects as kubectl prints them, and the snapshot they become. For kube/translate.
- `pserver_jobs`: jobs with running pservers. For planner/test_consolidation*.
- `golden_pods`: the pods of the jobs in api/golden_files, as YAML. For api and e2e/parts/test_resource.
- `hostile.jobs`: invalid, odd and malicious TrainingJobs, each with its verdict. For api, kube, contract and e2e.
- `hostile.changes`: updates of TrainingJobs that have a status, each with its verdict.
- `hostile.manifests`: the builders of both.

Clusters for the planner:

- `effort`: how many of its cases a test tries.
- `small_clusters`: random clusters in which only cpu is scarce, and what a plan makes of them.
- `rich_clusters`: random clusters with several resources, selectors and taints. For planner/decide.
- `brute_force`: the best possible plan of a tiny cluster, found without the planner's code.

One job, or a whole controller, in virtual time:

- `fakes`: fakes of the controller's ports. For controller and lifecycle.
- `job_by_target`: one job; the test sets the number of trainers of each round. For lifecycle.
- `job_by_spec`: one job; the plan follows its spec. For lifecycle.
- `simulated_objects`: the true objects of a cluster, and a cache that lags behind them.
- `simulated_cluster`: these, with simulated kubelets, a scheduler, a garbage collector and an API server.
- `simulated_controller`: the real controller and planner on a `simulated_cluster`. For controller/loop/test_loop_*.
- `histories.random_history`: jobs, serving, nodes and API faults from one seed, and the rules that must hold.
- `histories.remembered_plans`: the planner's decisions for `histories.random_history`, each situation decided once.
- `mixes`: random mixes of TrainingJobs, Jobs and Volcano Jobs under waves of serving, and the rules for their counts.
  For controller/loop/test_loop_mixes and volcano/test_mixes.
- `storms`: hours in which webhooks, quotas, images, crashes, nodes and owners go wrong at random, on the sandbox's
  API server in this process, and who judges them. For controller/loop/test_loop_storms.
- `small_scope`: every history of very small clusters under the real controller. For
  controller/loop/test_loop_small_scope.
- `controller_with_masters`: the controller on fake pods, with real masters. For controller/master_monitor.

The API server:

- `fake_api`: a small API server over HTTP: lists, watches and scripted faults. For kube.

The data master, the ledger and the container's first process:

- `master_server`: a master in this process, on a real port and a real disk. For master and worker.
- `master_processes`: a master and trainers as processes that a test can kill. For master.
- `ledger.simulation`: a ledger, its journal, trainers and an unreliable network in virtual time. For ledger.
- `ledger.by_position`: the expected progress, counted position by position, that the simulation compares with.
- `in_step.lists`: a model that is a list, and collectives among threads and processes. For worker/test_steps* and
  real/test_broken.
- `in_step.learning`: the same with gradients, which measures noise and times and chooses its batch. For
  controller/master_monitor/test_master_monitor_goodput.
- `in_step.process`: a trainer of such a model as a process that stops itself. For worker/test_steps_hung.
- `launcher_processes`: `paddle_k8s` as a process, as a container runs it. For pod and e2e/parts/test_launch.

The worlds of the end-to-end tests are in `tests/e2e/worlds`.
"""
