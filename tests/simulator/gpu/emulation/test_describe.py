"""A description holds what the profiles measured, and GPEmu's files are read as documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.gpu.emulation.describe import EmulatedPlacement, describe, emulation_summary
from simulator.gpu.emulation.script.emulated_gpu import EmulatedGpu, EmulatedOutOfMemory
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.profiles.table import published
from traces.errors import InputError

A100 = "NVIDIA_A100-SXM4-40GB"
TIMES = "Batch_Size,Time_In_SECONDS\n"
STEPS = "model,gpu_type,placement,local_batch,step_s,sync_s\n"


def gpemu(
    folder: Path, memory: str = "batch_size,peak,persistent\n64.0,5602.171875,334.96\n256.0,45000.5,448.07\n"
) -> Path:
    """A copy of some rows of GPEmu's ResNet-50 in the layout of its folder; memory at batch 256 is made up."""
    files = {
        f"time/compute/forward/{A100}/resnet50": (f"{TIMES}64,0.027611494064331055\n256,0.1057443916797638\n"),
        f"time/compute/backward/{A100}/resnet50": f"{TIMES}64.0,0.05\n256.0,0.2\n8.0,0.01\n",
    }
    for place, text in files.items():
        (folder / place).mkdir(parents=True)
        (folder / place / "time_by_batch_size.csv").write_text(text)
    (folder / f"time/transfer/{A100}/resnet50").mkdir(parents=True)
    (folder / f"time/transfer/{A100}/resnet50/data_transfer_time_by_batch_size.csv").write_text(f"{TIMES}64,0.004\n")
    (folder / f"memory/{A100}/resnet50").mkdir(parents=True)
    (folder / f"memory/{A100}/resnet50/memory.csv").write_text(memory)
    return folder


def test_published_steps_are_those_of_the_profile() -> None:
    found = describe("published", EmulatedPlacement("resnet50-imagenet", "A100", gpus=16, nodes=2))
    profile = published()["resnet50-imagenet"]
    assert found["steps"] == [[163.0, *profile.steps["A100"].at(2, 16, 163.0)]]
    assert found["local_batch"] == 163 and found["is_measured"] and found["memory_mib"] is None
    assert EmulatedGpu(found).step_s() == profile.steps["A100"].at(2, 16, 163.0)
    assert "not measured" in emulation_summary(describe("published", EmulatedPlacement("bert", "A100", gpus=3)))


def test_pairs_measured_on_these_gpus_are_slowed() -> None:
    known = published()
    model, (gpu_type, other, gpus) = next(
        (model, pair) for model, profile in known.items() for pair in profile.packed if packed_share(
            profile, known[pair[1]], pair[0], pair[2]) < 1.0
    )  # fmt: skip
    share = packed_share(known[model], known[other], gpu_type, gpus)
    assert describe("published", EmulatedPlacement(model, gpu_type, gpus))["packed"][other] == pytest.approx(1 / share)
    assert describe("published", EmulatedPlacement(model, gpu_type, 4, 4))["packed"] == {}


def test_files_of_gpemu_are_read_as_documented(tmp_path: Path) -> None:
    found = describe(str(gpemu(tmp_path)), EmulatedPlacement("resnet50", A100))
    assert found["steps"] == [[64.0, pytest.approx(0.0776115), 0.0], [256.0, pytest.approx(0.3057444), 0.0]]
    assert found["local_batch"] == 256 and found["memory_mib"] == 40 * 1024  # by the name of the type
    assert found["memory"] == [[64.0, 5602.171875], [256.0, 45000.5]] and found["transfer"] == [[64.0, 0.004]]
    one = EmulatedGpu(found | {"speed": 1e6})
    one.step(64)
    assert one.reserved_mib == 5602.171875
    with pytest.raises(EmulatedOutOfMemory, match="needs 45,000 MiB, and 40,960 of 40,960"):
        one.step()
    assert describe(str(tmp_path), EmulatedPlacement("resnet50", A100, gpu_memory_gib=80))["memory_mib"] == 80 * 1024


def test_a_folder_of_ones_own_has_memory_and_transfers(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(f"{STEPS}a,T4,1,8,0.5,0\na,T4,1,16,0.75,0\n")
    place = EmulatedPlacement("a", "T4", local_batch=12)
    assert "not profiled: memory and transfer" in emulation_summary(describe(str(tmp_path), place))
    (tmp_path / "batches.csv").write_text(
        "model,gpu_type,local_batch,memory_mib,transfer_s\na,T4,16,900,\na,T4,8,500,0.25\nb,T4,1,1,1\n"
    )
    found = describe(str(tmp_path), place)
    assert found["memory"] == [[8.0, 500.0], [16.0, 900.0]] and found["transfer"] == [[8.0, 0.25]]
    assert EmulatedGpu(found).step_s() == (0.625, 0.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,T4,8,-1,\n", "line 2: memory_mib '-1': give a number above 0"),
        ("a,T4,8,nan,\n", "line 2: memory_mib 'nan'"),
        ("a,T4,0,1,\n", "line 2: local_batch '0': give a number above 0"),
        ("a,T4,8,1,\na,T4,8.0,2,\n", "line 3: local_batch 8 appears twice"),
        ("a,T4,8,1\n", "line 2: 4 values for 5 columns"),
        (",T4,8,1,\n", "line 2: model ''"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "steps.csv").write_text(f"{STEPS}a,T4,1,8,0.5,0\n")
    (tmp_path / "batches.csv").write_text(f"model,gpu_type,local_batch,memory_mib,transfer_s\n{text}")
    with pytest.raises(InputError, match=f"batches.csv, {reason}"):
        describe(str(tmp_path), EmulatedPlacement("a", "T4"))


def test_wrong_questions_name_what_there_is(tmp_path: Path) -> None:
    folder = str(gpemu(tmp_path, memory="batch,peak\n"))
    for profiles, place, reason in (
        (
            "published",
            EmulatedPlacement("gpt5", "A100"),
            "no profile of model 'gpt5'; there are: resnet18-cifar10, bert",
        ),
        ("none", EmulatedPlacement("bert", "A100"), "there are: none"),
        ("published", EmulatedPlacement("bert", "H100\x1b"), r"on GPU type 'H100\\x1b'; it was on: T4,"),
        ("published", EmulatedPlacement("bert", "A100", 1, 2), "1 GPU on 2 nodes"),
        (folder, EmulatedPlacement("vgg11", A100), "no model 'vgg11'; there are: resnet50"),
        (folder, EmulatedPlacement("resnet50", "../x"), f"no GPU type '../x'; there are: {A100}"),
        (folder, EmulatedPlacement("resnet50", A100), "memory.csv, line 1: unknown column 'batch'"),
    ):
        with pytest.raises(InputError, match=reason):
            describe(profiles, place)
