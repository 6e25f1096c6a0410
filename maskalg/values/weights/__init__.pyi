# Written by `make stubs`.
from .softmax import *
from .unnormalised import *
from .weight import *
