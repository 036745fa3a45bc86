"""What the end-to-end tests share, one module each.

- `harness`: a control plane with edl installed, and the controller to start and stop.
- `controller_process`: the controller as a process, with its pages and its log.
- `real_master`: the master of a job as a process at its pod's address, and trainers whose calls the test makes.
- `jobs`: the TrainingJobs and Deployments that the tests create.
- `follow`: all changes of a kind of objects, in order.
- `pod_log`: when each pod was created and deleted, and by whom.
- `campaign`: scales serving up and down on a large cluster and measures each step.
- `hostile_tenants`: two tenants who create and delete hostile jobs without pause.
- `facts`: what the objects of a cluster amount to: free resources, fulfilments, victims. It does not import edl.
- `hindsight`: how full the cluster could have been, if every later change had been known.
- `rights`: the rights that RBAC grants, and those that the audit log shows in use.
"""
