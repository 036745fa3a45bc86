"""The list of commands: what each does, where its flags are declared, and which function runs it.

Standard library only, and nothing is imported before it is needed, so that `edl --help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edl.settings.flags import Settings

ABOUT = "Elastic deep learning on Kubernetes: trains in the capacity that your services leave free."


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `edl`.

    Attributes:
        name: what follows `edl`; a command of a group has two words, such as `master status`.
        summary: one line for the list of commands.
        settings: `module:class` with its flags.
        run: `module:function` that takes an instance of the class and returns the exit code, or None for 0.
        exit_codes: what the codes mean, if not only 0 done, 1 failed, 2 wrong usage.
    """

    name: str
    summary: str
    settings: str
    run: str
    exit_codes: str = ""


COMMANDS = (
    Command(
        "controller",
        "Resize every TrainingJob of a cluster until stopped.",
        "edl.settings.controller:ControllerSettings",
        "edl.cli.controller:controller",
    ),
    Command(
        "plan",
        "Print the decision for a saved cluster; needs no cluster.",
        "edl.settings.plan:PlanSettings",
        "edl.cli.plan:plan",
        "0 a plan was made; 1 no plan could be made, or it breaks a rule; 2 wrong usage or an unreadable file",
    ),
    Command(
        "explain",
        "Explain why a job has its number of trainers; only reads.",
        "edl.settings.explain:ExplainSettings",
        "edl.cli.explain:explain",
        "0 done; 1 the cluster cannot be read, or no plan could be made; 2 wrong usage, an unknown job or an"
        " unreadable file",
    ),
    Command(
        "dashboard",
        "Show a cluster in the browser; only reads.",
        "edl.settings.dashboard:DashboardSettings",
        "edl.cli.dashboard:dashboard",
        "0 after SIGINT or SIGTERM; 1 the cluster cannot be read; 2 wrong usage, or an address that cannot be used",
    ),
    Command(
        "shadow",
        "Report what edl would do in a cluster; only reads.",
        "edl.settings.shadow:ShadowSettings",
        "edl.cli.shadow:shadow",
        "0 after --for, SIGINT or SIGTERM; 1 the cluster cannot be read; 2 wrong usage, or an unusable folder",
    ),
    Command(
        "replay",
        "Make a recorded decision again, and compare.",
        "edl.settings.replay:ReplaySettings",
        "edl.cli.replay:replay",
        "0 the same decision; 1 a different decision, or none; 2 wrong usage or no readable record",
    ),
    Command(
        "audit",
        "Prove from a journal that every record was counted once.",
        "edl.settings.audit:AuditSettings",
        "edl.cli.audit:audit",
        "0 every position of every epoch was counted once; 1 a rule is broken; 2 wrong usage or no readable journal",
    ),
    Command(
        "crd",
        "Print the CustomResourceDefinition of TrainingJob.",
        "edl.settings.flags:Settings",
        "edl.cli.manifests:crd",
    ),
    Command(
        "manifests",
        "Print all objects that install the controller.",
        "edl.settings.flags:Settings",
        "edl.cli.manifests:manifests",
    ),
    Command(
        "master",
        "Run the data master of one job.",
        "edl.settings.master:MasterSettings",
        "edl.cli.master:master",
        "0 after SIGTERM or SIGINT; 1 the journal is damaged, lost or cannot be written; 2 wrong usage",
    ),
    Command(
        "master status",
        "Print the state of a running data master.",
        "edl.settings.master:StatusSettings",
        "edl.cli.master:status",
    ),
    Command(
        "submit",
        "Create the TrainingJobs of a file.",
        "edl.settings.jobs:SubmitSettings",
        "edl.cli.jobs:submit",
        "0 every job was created; 1 the API server rejected one; 2 wrong usage or an unreadable file",
    ),
    Command(
        "get",
        "Print TrainingJobs, as kubectl get does.",
        "edl.settings.jobs:GetSettings",
        "edl.cli.jobs:get",
    ),
    Command(
        "watch",
        "Print TrainingJobs, and each change of them until stopped.",
        "edl.settings.jobs:WatchSettings",
        "edl.cli.jobs:watch",
    ),
    Command(
        "logs",
        "Print the logs of a job's pods.",
        "edl.settings.jobs:LogsSettings",
        "edl.cli.jobs:logs",
    ),
    Command(
        "scale",
        "Fix the number of trainers of a job.",
        "edl.settings.jobs:ScaleSettings",
        "edl.cli.jobs:scale",
    ),
    Command(
        "suspend",
        "End the pods of jobs until they are resumed.",
        "edl.settings.jobs:SeveralJobsSettings",
        "edl.cli.jobs:suspend",
    ),
    Command(
        "resume",
        "Let suspended jobs run again, from where they were.",
        "edl.settings.jobs:SeveralJobsSettings",
        "edl.cli.jobs:resume",
    ),
    Command(
        "delete",
        "Delete TrainingJobs with their pods.",
        "edl.settings.jobs:DeleteSettings",
        "edl.cli.jobs:delete",
    ),
    Command(
        "kubelet",
        "Run nodes whose containers are local processes.",
        "edl.settings.kubelet:KubeletSettings",
        "edl.cli.kubelet:kubelet",
        "0 after SIGTERM or SIGINT; 1 the API server rejects the request, or a part has ended; 2 wrong usage",
    ),
    Command(
        "sandbox",
        "Run a whole cluster with edl on this machine.",
        "edl.settings.sandbox:SandboxSettings",
        "edl.cli.sandbox:sandbox",
        "0 after SIGTERM or SIGINT, or when the demonstration went well; 1 a part has failed; 2 wrong usage",
    ),
    Command(
        "simulate",
        "Run a scenario in virtual time, and compare policies.",
        "edl.settings.simulate:SimulateSettings",
        "edl.cli.simulate:simulate",
        "0 done; 1 the controller failed in a run; 2 wrong usage, or a scenario that cannot be used",
    ),
)


def settings_of(command: Command) -> type[Settings]:
    """The class that declares the flags of a command."""
    found: type[Settings] = load(command.settings)
    return found


def load(place: str) -> Any:  # noqa: ANN401 - a class or a function
    """Import `module` and return its `name`, given as `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
