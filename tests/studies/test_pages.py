"""What a program makes replaces what is between two markers of a page, and nothing else."""

import pytest

from studies.pages import filled

PAGE = "above\n<!-- a b: begin -->\nold\n<!-- a b: end -->\nbelow\n<!-- c: begin -->\n<!-- c: end -->\n"


def test_what_is_made_replaces_what_is_between_the_markers():
    once = filled(PAGE, "a b", "new\n")
    assert once == PAGE.replace("\nold\n", "\n\nnew\n\n")
    assert filled(once, "a b", "new") == once


@pytest.mark.parametrize("marker", ["<!-- c: begin -->", "<!-- c: end -->"])
def test_a_page_without_a_marker_is_refused(marker):
    with pytest.raises(ValueError, match="lacks the lines <!-- c: begin --> and <!-- c: end -->"):
        filled(PAGE.replace(marker, ""), "c", "new")
