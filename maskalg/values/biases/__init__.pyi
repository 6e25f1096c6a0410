# Written by `make stubs`.
from .distance import *
from .fire import *
from .pointwise import *
from .relative import *
from .softcap import *
from .t5 import *
