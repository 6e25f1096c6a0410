"""A mask as one HTML file to look into: pan, zoom, read why, move the parameters.

The page computes all that it shows. The formula and the closed forms of the proof travel as
JavaScript (`javascript`, `ranges`, `closed_forms`), tensors as compressed tables (`tables`), and
`page` joins them with the files of `static/`.
"""

from .page import explore as explore
from .page import html as html
