"""Makes every live sequence join the same step."""

from __future__ import annotations

from deployments.batch_gate import BatchGate
from models.schedule.sequence import Sequence
from models.stepper import Progress

# Always one batch of all who ask: a step is planned over every live sequence.
StepGate = BatchGate[Sequence, Progress]
