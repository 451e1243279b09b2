"""Pictures of served pages are made by a program that starts what they show."""

import struct

import pytest
import screens
from browser import chromium


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="needs a Chromium on the PATH")
def test_the_picture_of_a_portal_is_made_of_a_search_that_found_something(tmp_path):
    pytest.importorskip("tantivy")
    screens.write(["portal"], tmp_path)  # raises where five hits do not come
    png = (tmp_path / "portal.png").read_bytes()
    assert struct.unpack(">II", png[16:24]) == (1000, 900) and len(png) > 20_000


def test_each_picture_of_a_served_page_has_a_program():
    made = {"status", "status-dark", "demo-web", "portal"}
    assert {file.stem for file in screens.IMAGES.glob("*.png")} == made | {"demo"}  # the last is drawn, `make numbers`
    assert set(screens.SCREENS) <= made
    with pytest.raises(SystemExit, match="nothing"):
        screens.write(["nothing"])
