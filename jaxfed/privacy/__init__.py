"""Who saw what in a vertical run, what can be inferred from it, what defends against that; and noise for clients."""

from jaxfed.privacy.recording import record
from jaxfed.privacy.transcript import Pass, Sum, Transcript, View

__all__ = ["Pass", "Sum", "Transcript", "View", "record"]
