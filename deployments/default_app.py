"""The application of ``serve_config.yaml`` as an object, which is what ``serve build`` takes."""

from configs.settings import AppSettings
from configs.shipped import arguments
from deployments.app import build

app = build(AppSettings.model_validate(arguments()))
