# Written by `make stubs`.
from .rectified import *
from .sigmoid import *
from .softmax import *
from .weight import *
