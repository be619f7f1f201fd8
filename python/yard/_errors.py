# SPDX-License-Identifier: Apache-2.0
"""The exceptions of failed calls."""

from collections import namedtuple


class Error(RuntimeError):
    """A call or a request failed.

    `code` names what went wrong ("no_kernel", "parse"), `notes` are further lines, and `reasons`
    tells for each kernel of the op why it did not run: a list of dicts with `kernel`, `reason` and
    `detail`.
    """

    code = ""
    op = ""
    notes = ()

    @property
    def reasons(self):
        found = []
        for note in self.notes:
            kernel, _, rest = note.partition(": ")
            reason, _, detail = rest.partition(": ")
            if rest:
                found.append({"kernel": kernel, "reason": reason, "detail": detail})
        return found


class CallerError(Error, ValueError):
    """The call or the value is not accepted."""


class Declined(Error):
    """No kernel takes the call. A kernel in Python raises it for calls that it cannot run."""


class TransientError(Error):
    """Memory ran out or a resource is busy; the same call may succeed later."""


class FaultError(Error):
    """Kernels ran and failed."""


class DeviceLostError(Error):
    """The device is lost until it is reset."""


class FatalError(Error):
    """A kernel says that its state is damaged."""


_CLASSES = (Error, CallerError, Declined, TransientError, FaultError, DeviceLostError, FatalError)

TensorInfo = namedtuple("TensorInfo", "dtype shape strides device")
TensorInfo.__doc__ = "A tensor of a call without its elements, for verifiers."


def made(subject, code, number, message, notes):
    """Makes the exception for a failed status; for the extension."""
    kind = _CLASSES[number] if 0 < number < len(_CLASSES) else Error
    error = kind("\n  ".join((message, *notes)))
    error.code, error.op, error.notes = code, subject, notes
    return error
