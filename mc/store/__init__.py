"""The results folder: schema, atomic shards, lock, manifest, reading back.

    .lock, .lock-K-of-N      while a run, or part K of N of one, is at work: who, and since when
    manifest.json            the experiment, the numbers of its cells, versions, columns; at the
                             end a list of all files
    cells.parquet            one row for each cell
    replications/*.parquet   the rows, in shards
    histograms/*.parquet     in place of rows, with keep = "histograms"
    summary.parquet, comparisons.parquet, claims.parquet
    rejected/                shards that were damaged or foreign

Every file is written beside the place where it belongs, flushed to disk and moved there whole, so
a kill at any moment leaves whole files. The folder of the shards never holds anything else: a
stray file there would break everyone who scans it. In an object store (`paths`) each file is put
in one request, which comes to the same.

What is done is read off the shards; nothing else has to be kept in step with them. The manifest
comes first and gives every cell its number; all other tables can be made anew.
"""

from mc.store.files import (
    FOLDERS,
    MANIFEST,
    TABLES,
    content_of,
    table_bytes,
    table_file,
    write,
    write_table,
)
from mc.store.lock import Holder, held, is_held
from mc.store.manifest import FORMAT, DamagedError, write_manifest
from mc.store.memory import check_page, check_run, of_page, of_run
from mc.store.pages import PAGE, page_faults, sealed
from mc.store.paths import FolderError, first_line, is_remote, of_each, path_of
from mc.store.results import (
    Results,
    axis_names,
    clear,
    for_reader,
    is_of_run,
    load,
    look,
    make_ready,
    name_columns,
    new_manifest,
    read_table_file,
    scan,
    tables_are_whole,
    with_names,
)
from mc.store.shards import (
    Shard,
    draws_name,
    put_aside,
    read_footer,
    read_shard,
    read_shards,
    read_sums,
    shard_bytes,
    shard_paths,
    write_shard,
)
from mc.store.state import Status, status
from mc.store.told import (
    OF_UNDECIDED,
    cell_name,
    claims_told,
    coordinate_text,
    not_comparable,
    place_name,
    undecided,
    undecided_told,
)

__all__ = [
    "FOLDERS",
    "FORMAT",
    "MANIFEST",
    "OF_UNDECIDED",
    "PAGE",
    "TABLES",
    "DamagedError",
    "FolderError",
    "Holder",
    "Results",
    "Shard",
    "Status",
    "axis_names",
    "cell_name",
    "check_page",
    "check_run",
    "claims_told",
    "clear",
    "content_of",
    "coordinate_text",
    "draws_name",
    "first_line",
    "for_reader",
    "held",
    "is_held",
    "is_of_run",
    "is_remote",
    "load",
    "look",
    "make_ready",
    "name_columns",
    "new_manifest",
    "not_comparable",
    "of_each",
    "of_page",
    "of_run",
    "page_faults",
    "path_of",
    "place_name",
    "put_aside",
    "read_footer",
    "read_shard",
    "read_shards",
    "read_sums",
    "read_table_file",
    "scan",
    "sealed",
    "shard_bytes",
    "shard_paths",
    "status",
    "table_bytes",
    "table_file",
    "tables_are_whole",
    "undecided",
    "undecided_told",
    "with_names",
    "write",
    "write_manifest",
    "write_shard",
    "write_table",
]
