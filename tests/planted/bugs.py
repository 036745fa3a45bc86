"""All of them."""

from __future__ import annotations

from tests.planted.cluster import OF_CLUSTER
from tests.planted.data import OF_DATA
from tests.planted.launch import OF_LAUNCH
from tests.planted.life import OF_LIFE
from tests.planted.room import OF_ROOM

BUGS = (*OF_LIFE, *OF_DATA, *OF_LAUNCH, *OF_CLUSTER, *OF_ROOM)
