"""Claims about changed texts of the walk that are not proved, each with the step that fails."""

from maskalg.verifier.claims import Claim
from maskalg.verifier.walk.claims import walk_claims

MILLISECONDS = 2000


def refused(sources, only=lambda function: True) -> list[Claim]:
    """The claims about these texts that are not proved.

    Each names the step that was not shown, or the part that is not read. That z3 ran out of time is
    not enough: the right text might fail so, too.
    """
    found = [claim for claim in walk_claims(sources, MILLISECONDS, only) if not claim.holds]
    assert found, "every claim is proved"
    for claim in found:
        assert claim.outcome == "not proved"
        assert claim.by.startswith(("not shown: ", "not read: ")), claim.by
    assert not all("z3 did not decide it" in claim.by for claim in found), found
    return found
