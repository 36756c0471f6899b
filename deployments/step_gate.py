"""Makes every live sequence join the same step."""

from __future__ import annotations

from deployments.batch_gate import BatchGate
from models.progress import Progress
from models.schedule.sequence import Sequence

# Always one batch of all who ask: a step is planned over every live sequence.
StepGate = BatchGate[Sequence, Progress]
