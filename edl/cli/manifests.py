"""`edl crd` and `edl manifests`."""

from __future__ import annotations

import typer

from edl.install.manifests import crd_yaml, manifests_yaml
from edl.settings.flags import Settings


def crd(_: Settings) -> None:
    """Print the CustomResourceDefinition of TrainingJob."""
    typer.echo(crd_yaml(), nl=False)


def manifests(_: Settings) -> None:
    """Print all objects that install the controller, as one YAML file."""
    typer.echo(manifests_yaml(), nl=False)
