"""Reads events with TensorBoard's own reader. Argument: the program that writes them (tests/telemetry)."""

import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

begin = time.time()
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    events = EventAccumulator(folder)
    events.Reload()

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

print(f"{len(losses)} losses over one resumption, as TensorBoard shows them")
