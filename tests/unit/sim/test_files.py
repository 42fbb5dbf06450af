import gzip

import pytest

from cpsched_sim.errors import Unusable
from cpsched_sim.files import write_table, write_whole


def test_tables_are_written_packed_where_the_name_says_so(tmp_path):
    write_table(tmp_path / "new" / "t.csv.gz", [("a", "b"), (1, "x,y")])
    assert gzip.decompress((tmp_path / "new" / "t.csv.gz").read_bytes()).decode() == 'a,b\n1,"x,y"\n'


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path, mocker):
    path = tmp_path / "t"
    write_whole(path, b"old")
    mocker.patch("pathlib.Path.replace", side_effect=OSError("disk full"))
    with pytest.raises(Unusable, match="cannot be written: disk full"):
        write_whole(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("t", b"old")]
