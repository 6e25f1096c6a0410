"""The kinds of error, and the messages that several rooms share.

Other messages stand where they are raised, or in `messages.py` of their room where they are long or
several places raise them. Each says what was typed, what was found, and what to write instead.
"""

from .calls import *
from .kinds import BackendError as BackendError
from .kinds import MaskalgError as MaskalgError
from .kinds import MaskAttributeError as MaskAttributeError
from .kinds import MaskTypeError as MaskTypeError
from .kinds import MaskValueError as MaskValueError
from .kinds import MissingPackageError as MissingPackageError
from .kinds import RecompilationWarning as RecompilationWarning
from .strangers import *
