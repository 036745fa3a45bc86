"""`edl crd` and `edl manifests`."""

from __future__ import annotations

import typer

from edl.install.manifests import crds_yaml, manifests_yaml
from edl.settings.flags import Settings


def crd(_: Settings) -> None:
    """Print the CustomResourceDefinitions of TrainingJob and Queue."""
    typer.echo(crds_yaml(), nl=False)


def manifests(_: Settings) -> None:
    """Print all objects that install the controller, as one YAML file."""
    typer.echo(manifests_yaml(), nl=False)
