"""Reads events with TensorBoard's own reader. Argument: the program that writes them (tests/telemetry)."""

import subprocess
import sys
import tempfile
import time

from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups


def hparams_page(folder):
    """What TensorBoard's HParams page shows of the folder: its session groups, one for each run."""
    runs = EventMultiplexer().AddRunsFromDirectory(folder)
    runs.Reload()
    backend = backend_context.Context(base_plugin.TBContext(logdir=folder, data_provider=MultiplexerDataProvider(runs, folder)))
    statuses = [api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING]
    request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=10, allowed_statuses=statuses)
    return list_session_groups.Handler(context.RequestContext(), backend, "", request).run().session_groups


begin = time.time()
with tempfile.TemporaryDirectory() as folder:
    run = f"{folder}/sample/tensorboard"  # as runs/NAME/tensorboard
    subprocess.run([sys.argv[1], run], check=True)
    events = EventAccumulator(run)
    events.Reload()
    groups = hparams_page(folder)

assert events.file_version == 2.0, events.file_version
assert sorted(events.Tags()["scalars"]) == ["large/step", "train/accuracy ü", "train/loss"], events.Tags()
losses = events.Scalars("train/loss")
# Steps 7 … 10 of the first part are dropped: the resumed run repeats them.
assert [event.step for event in losses] == list(range(1, 13)), losses
for event in losses:
    expected = 1 / event.step if event.step < 7 else 100 + event.step
    assert abs(event.value - expected) < 1e-6, event
    assert begin - 1 < event.wall_time < time.time() + 1, event
assert [event.step for event in events.Scalars("train/accuracy ü")] == list(range(1, 7))
assert not events.Scalars("large/step"), "a later step of the first part stays"

assert [group.name for group in groups] == ["sample"], groups
shown = {name: value.WhichOneof("kind") and getattr(value, value.WhichOneof("kind")) for name, value in groups[0].hparams.items()}
# Those of the first part: TensorBoard keeps what it has read first.
assert shown == {"lr": 0.003, "seed": 7.0, "fused": True, "env": "darkroom ü"}, shown
(session,) = groups[0].sessions
assert session.status == api_pb2.STATUS_SUCCESS and begin - 1 < session.end_time_secs < time.time() + 1, session
(loss,) = [metric.value for metric in groups[0].metric_values if metric.name.tag == "train/loss"]
assert loss == 112, loss

print(f"{len(losses)} losses over one resumption, as TensorBoard shows them")
