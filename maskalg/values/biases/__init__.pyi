# Written by `make stubs`.
from .alibi import *
from .decay import *
from .fire import *
from .graphormer import *
from .kerple import *
from .pointwise import *
from .relative import *
from .relative_2d import *
from .sandwich import *
from .shaw import *
from .softcap import *
from .t5 import *
