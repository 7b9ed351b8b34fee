"""What a file is, is proven: by its bytes and by belonging to the run. Each case was once lost.

The clock that plans are made by is an hour ahead of the real one, where a file's own times
(of which nobody can set the second) are not to count.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ckpttool.errors import CorruptError, PermissionDeniedError
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.many import apply_many, plan_many
from ckpttool.ops.prune.plan import PrunePlan, plan_prune
from ckpttool.policy.facts import Retention
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import LocalFile
from tests.support.runs import HOUR, add, contents, hdf5, make_run, prefixes, state

NAMES_CKPT_1 = 'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n'
#: What `add` gives a checkpoint of one shard.
SUFFIXES = (".index", ".data-00000-of-00001")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """ckpt-1 to ckpt-5, a day old, listed with times."""
    ages = {f"ckpt-{number}": 30 - number for number in range(1, 6)}
    return make_run(tmp_path / "run", ages, now=time.time())


def put(path: Path, data: bytes | str, age: float = 24.0) -> None:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    when = time.time() - age * HOUR
    os.utime(path, (when, when))


def plan_of(
    run: Path, *, later: float = HOUR, limits: Limits | None = None, **more: object
) -> PrunePlan:
    settings = {"max_to_keep": 2} | more
    request = Request(Retention(**settings))  # type: ignore[arg-type]
    return plan_prune(str(run), request, limits=limits, now=time.time() + later)


def going(plan: PrunePlan) -> set[str]:
    return {removal.prefix for removal in plan.removals}


def deny(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these were another user's (tests may run as root, whom nothing is denied)."""
    really = LocalDirectory.open

    def opened(self: LocalDirectory, name: str) -> LocalFile:
        if name in names:
            raise PermissionDeniedError(f"cannot open {name}", why="Permission denied")
        return really(self, name)

    monkeypatch.setattr(LocalDirectory, "open", opened)


OLD = {"ckpt-1", "ckpt-2", "ckpt-3"}


class TestInFlight:
    """The newest time of everything inside, also the one that a copy cannot keep."""

    def test_a_part_that_is_written_in_an_old_directory(self, run: Path) -> None:
        folder = run / "ckpt-9_temp_0123abcd"
        folder.mkdir()
        (folder / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"x")
        os.utime(folder, (0, 0))
        assert going(plan_of(run, later=0, broken=True)) == OLD
        assert going(plan_of(run, broken=True)) == OLD | {folder.name}

    def test_a_copy_that_keeps_times(self, run: Path) -> None:
        add(run, "ckpt-6", time.time() - HOUR, shards=2, without=[".data-00001-of-00002"])
        add(run, "ckpt-7", time.time() - HOUR, without=[".index"])
        assert going(plan_of(run, later=0, broken=True)) == OLD
        left_by_7 = "ckpt-7.data-00000-of-00001"
        assert going(plan_of(run, broken=True)) == OLD | {"ckpt-6", left_by_7}

    def test_one_that_only_its_index_shows_to_be_cut_off(self, run: Path) -> None:
        add(run, "ckpt-6", time.time() - HOUR)
        put(run / "ckpt-6.data-00000-of-00001", b"\1", age=1)
        assert going(plan_of(run, later=0, broken=True, scope="all")) == OLD
        assert going(plan_of(run, broken=True, scope="all")) == OLD | {"ckpt-6"}


def test_the_parts_of_a_save_are_no_run_of_their_own(run: Path) -> None:
    folder = run / "ckpt-9_temp_0123abcd"
    folder.mkdir()
    for shard in range(2):
        add(folder, f"part-{shard:05d}-of-00002", time.time() - 9 * HOUR)
    request = Request(Retention(max_to_keep=1, scope="all", broken=True))
    assert [report.directory for report in plan_many(str(run), request)] == [str(run)]


@pytest.mark.parametrize(
    "name",
    [
        "batches.meta",
        "data_batch-1.meta",
        "faiss.index",
        "embeddings-7.index",
        "train.data-00001-of-00003",
        "ckpt.data-00000-of-00001",
        "notes.tmp0123456789abcdef0123456789abcdef",
        "features_temp/part-00000-3f2a.snappy.parquet",
        "features_temp/part-0",
    ],
)
@pytest.mark.parametrize("scope", ["listed", "all"])
def test_other_programs_files(run: Path, name: str, scope: str) -> None:
    """A name is no proof: --broken leaves them, and says so."""
    (run / name).parent.mkdir(exist_ok=True)
    put(run / name, b"IxF2...." * 40)
    plan = plan_of(run, broken=True, scope=scope)
    assert going(plan) == OLD
    said = dict(plan.left_alone)
    assert {name.split("/", maxsplit=1)[0], name.removesuffix(".index")} & set(said)
    assert "--broken" not in " ".join(said.values())
    apply_plan(plan)
    assert name in contents(run)


def test_what_saves_of_this_run_left_goes(run: Path) -> None:
    """So that the tests above cannot pass because nothing goes."""
    names = [
        "ckpt-7.meta",
        "ckpt-8.data-00000-of-00002",
        "ckpt-9.index.tempstate12345",
        "checkpoint.tmp0123456789abcdef0123456789abcdef",
    ]
    for name in names:
        put(run / name, b"\x00\x01\x02" * 99)
    put(run / "ckpt-6.index", b"")
    (run / "ckpt-10_temp").mkdir()
    assert going(plan_of(run, broken=True)) == OLD | {*names, "ckpt-6", "ckpt-10_temp"}


class TestKerasAndV1:
    """Opened, and whole by their ends."""

    def test_data_sets_are_no_models(self, run: Path) -> None:
        for number in (1, 2, 3):
            put(run / f"train-{number}.h5", f"text {number}")
            put(run / f"images-{number}.h5", hdf5(mark=b"images"))
        plan = plan_of(run, scope="all", max_to_keep=1)
        assert going(plan) == OLD | {"ckpt-4"}
        assert {"train-1.h5", "images-3.h5"} <= set(dict(plan.left_alone))

    def test_one_that_is_cut_off_fills_no_quota(self, tmp_path: Path) -> None:
        for number in (1, 2, 3):
            put(tmp_path / f"model-{number}.h5", hdf5(300), age=9 - number)
        put(tmp_path / "model-4.h5", hdf5(300)[:250], age=4)
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == {"model-1.h5", "model-2.h5"}

    def test_too_short_to_say_what_it_is(self, tmp_path: Path) -> None:
        put(tmp_path / "model-1.h5", hdf5(4000))
        put(tmp_path / "model-2.h5", hdf5()[:18], age=20)
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == set()

    def test_keras_itself(self, tmp_path: Path, corpus: Path) -> None:
        for source, suffix in (
            ("keras3-mnist-weights-sm-tflite/mnist.weights.h5", ".weights.h5"),
            ("h5-tfjs-fsrcnn/trained_model/SRCNN.h5", ".h5"),
            ("keras3-mnist-keras/mnist.keras", ".keras"),
        ):
            for number in (1, 2):
                put(tmp_path / f"m-{number}{suffix}", (corpus / source).read_bytes())
            put(tmp_path / f"m-3{suffix}", (corpus / source).read_bytes()[:-9999])
        expected = {"m-1.weights.h5", "m-1.h5", "m-1.keras"}
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == expected

    def test_v1_with_a_shard_missing(self, tmp_path: Path, corpus: Path) -> None:
        table = next((corpus / "v1-halfplustwo-sharded").rglob("export-00000-of-00001"))
        for number, shards in ((1, (0, 1)), (2, (0, 1)), (3, (0,))):
            for shard in shards:
                put(tmp_path / f"model-{number}-0000{shard}-of-00002", table.read_bytes())
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == {"model-1-?????-of-00002"}

    def test_v1_without_its_end(self, tmp_path: Path, corpus: Path) -> None:
        table = (corpus / "v1-acrobot-adam" / "model.ckpt").read_bytes()
        for number in (1, 2, 3):
            put(tmp_path / f"model-{number}", table[:-20] if number == 3 else table)
            put(tmp_path / f"model-{number}.meta", b"graph")
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == {"model-1"}

    def test_the_newest_that_latest_prints_stays_beside_a_newer_v1(
        self, tmp_path: Path, corpus: Path
    ) -> None:
        run = make_run(tmp_path / "run", {"ckpt-1": 9, "ckpt-2": 8}, now=time.time())
        shutil.copyfile(corpus / "v1-acrobot-adam" / "model.ckpt", run / "ckpt-9")
        os.utime(run / "ckpt-9", (time.time() - 7 * HOUR,) * 2)
        state(run, ["ckpt-1", "ckpt-2", "ckpt-9"], when=time.time() - HOUR)
        assert going(plan_of(run, style="saver", max_to_keep=1)) == {"ckpt-1"}


class TestUnreadable:
    """What cannot be read is neither broken nor counted, and is said."""

    @pytest.mark.parametrize("broken", [False, True])
    def test_an_index_over_a_limit(self, run: Path, broken: bool) -> None:
        plan = plan_of(run, broken=broken, limits=Limits(entries=0))
        assert going(plan) == set()
        why = dict(plan.left_alone)["ckpt-4"]
        assert why.startswith("whether it is whole is not known")

    def test_an_index_without_permission(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        deny(monkeypatch, "ckpt-1.index", "ckpt-4.index")
        plan = plan_of(run, broken=True)
        assert going(plan) == {"ckpt-2"}
        assert "Permission denied" in dict(plan.left_alone)["ckpt-1"]

    def test_an_index_of_a_later_version_or_of_another_kind(self, run: Path) -> None:
        put(run / "ckpt-1.index", b"version https://git-lfs.github.com/spec/v1\nsize 9\n")
        put(run / "ckpt-4.index", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
        plan = plan_of(run, broken=True)
        assert going(plan) == {"ckpt-2"}
        assert "Git-LFS pointer" in dict(plan.left_alone)["ckpt-1"]


class TestOtherStateFiles:
    """Anything that another state file points to always stays."""

    @pytest.mark.parametrize("name", [".best_checkpoint", "eval.best", "best_checkpoint", "best"])
    def test_of_any_name(self, run: Path, name: str) -> None:
        put(run / name, NAMES_CKPT_1)
        assert going(plan_of(run)) == OLD - {"ckpt-1"}

    def test_in_a_directory_below(self, run: Path) -> None:
        (run / "best").mkdir()
        put(run / "best" / "checkpoint", NAMES_CKPT_1.replace("ckpt-1", "../ckpt-1"))
        plan = plan_of(run)
        assert going(plan) == OLD - {"ckpt-1"}
        (kept,) = [one for one in plan.keep if one.checkpoint.prefix == "ckpt-1"]
        assert kept.reasons[-1].text == "named by best/checkpoint"

    def test_a_run_below_speaks_of_its_own(self, run: Path) -> None:
        make_run(run / "eval", {"ckpt-1": 9}, now=time.time())
        assert going(plan_of(run)) == OLD

    @pytest.mark.parametrize("name", ["best_checkpoint", "eval.best", "best/checkpoint"])
    def test_one_that_is_cut_off_refuses(self, run: Path, name: str) -> None:
        (run / name).parent.mkdir(exist_ok=True)
        put(run / name, NAMES_CKPT_1 + "all_model_checkpoint_timesta")
        self._refused(run)

    @pytest.mark.parametrize("data", [bytes(40), b"\xff\x00garbage"])
    def test_one_of_nothing_but_damage_refuses(self, run: Path, data: bytes) -> None:
        put(run / "best_checkpoint", data)
        self._refused(run)

    def test_a_link_refuses(self, run: Path, tmp_path: Path) -> None:
        put(tmp_path / "elsewhere", NAMES_CKPT_1)
        (run / "best_checkpoint").symlink_to(tmp_path / "elsewhere")
        self._refused(run)

    def test_a_link_to_a_directory_is_no_state_file(self, run: Path, tmp_path: Path) -> None:
        (run / "latest_checkpoint").symlink_to(tmp_path)
        assert going(plan_of(run)) == OLD

    def test_one_without_permission_refuses(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(run / "best_checkpoint", NAMES_CKPT_1)
        deny(monkeypatch, "best_checkpoint")
        self._refused(run)

    def test_another_program_s_checkpoint_is_none(self, run: Path) -> None:
        put(run / "best_checkpoint", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
        assert going(plan_of(run)) == OLD

    def test_one_above_names_a_run_below(self, run: Path) -> None:
        """Where runs below a root are pruned, its state files count."""
        make_run(run / "phase1", {f"ckpt-{n}": 30 - n for n in range(1, 6)}, now=time.time())
        put(run / "best_checkpoint", 'model_checkpoint_path: "phase1/ckpt-2"\n')
        request = Request(Retention(max_to_keep=1))
        apply_many(plan_many(str(run), request), trash=False)
        assert prefixes(run / "phase1") == {"ckpt-2", "ckpt-5"}
        assert "ckpt-1" not in prefixes(run)

    @staticmethod
    def _refused(run: Path) -> None:
        with pytest.raises(CorruptError) as refusal:
            plan_of(run)
        assert refusal.value.id == "state-unreadable"
        assert refusal.value.exit_code == 20


def test_what_a_link_stands_for_stays(run: Path) -> None:
    for suffix in SUFFIXES:
        (run / f"best{suffix}").symlink_to(f"ckpt-1{suffix}")
    plan = plan_of(run)
    assert going(plan) == OLD - {"ckpt-1"}
    (kept,) = [one for one in plan.keep if one.checkpoint.prefix == "ckpt-1"]
    assert "named by best.index, a link" in [reason.text for reason in kept.reasons]


def test_a_path_to_elsewhere_says_nothing_of_what_is_here(tmp_path: Path) -> None:
    """``../other/ckpt-1`` is there, so the one of that name here is not listed."""
    now = time.time()
    make_run(tmp_path / "other", {"ckpt-1": 20, "ckpt-2": 19}, now=now)
    run = make_run(tmp_path / "run", {"ckpt-1": 20, "ckpt-2": 19, "ckpt-9": 2}, now=now)
    paths = ["../other/ckpt-1", "../other/ckpt-2", "ckpt-9"]
    times = [now - age * HOUR for age in (20, 19, 2)]
    state(run, paths, times, last_preserved=1.0, when=now - HOUR)
    plan = plan_of(run, max_to_keep=1)
    assert going(plan) == set()
    assert set(paths[:2]) <= set(dict(plan.left_alone))
    shutil.rmtree(tmp_path / "other")  # a run that was moved away from there
    assert going(plan_of(run, max_to_keep=1)) == {"ckpt-1", "ckpt-2"}


class TestSaverPreserved:
    """A Saver takes what it keeps for ever off its list, and no file says that it did."""

    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        ages = {f"model.ckpt-{number * 100}": 90 - number for number in (0, 3, 6, 7, 8, 9)}
        listed = [f"model.ckpt-{number}" for number in (700, 800, 900)]
        return make_run(tmp_path / "run", ages, listed=listed, stamped=False, now=time.time())

    @pytest.mark.parametrize("style", ["manager", "saver"])
    def test_unlisted_older_ones_stay(self, saved: Path, style: str) -> None:
        plan = plan_of(saved, scope="all", style=style)
        assert going(plan) == {"model.ckpt-700"}
        assert any("TensorFlow may have preserved them" in text for text in plan.warnings)

    def test_they_go_when_that_is_said(self, saved: Path) -> None:
        plan = plan_of(saved, scope="all", style="saver", include_preserved=True)
        assert going(plan) == {f"model.ckpt-{number}" for number in (0, 300, 600, 700)}

    def test_by_time_where_names_have_no_number(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "r", {"best": 9}, stamped=False, now=time.time())
        assert going(plan_of(run, scope="all", max_to_keep=1)) == set()

    def test_no_warning_recommends_what_would_delete_them(self, saved: Path) -> None:
        assert "--scope all" not in " ".join(plan_of(saved, max_to_keep=1).warnings)

    def test_what_keras_saves_is_preserved_by_nobody(
        self, fixtures_dir: Path, tmp_path: Path
    ) -> None:
        """It lists the newest alone; the others are not taken for a Saver's."""
        for number in (2, 3, 4):
            for path in (fixtures_dir / "keras3").glob(f"ckpt-{number}.*"):
                put(tmp_path / path.name, path.read_bytes(), age=30 - number)
        state(tmp_path, ["ckpt-4"], when=time.time() - HOUR)
        assert going(plan_of(tmp_path, scope="all", max_to_keep=1)) == {"ckpt-2", "ckpt-3"}
