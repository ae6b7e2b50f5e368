"""The command line as a user meets it: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simulator.cli import main
from simulator.specs.load import names

FIRST = "run llama-3.1-70b --on mi455x --phase decode --batch 32 --context 4096"


class Ran:
    """Exit code and streams of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def tilecast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(command: str, *more: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["tilecast", *command.split(), *more])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        code = stop.value.code
        return Ran(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return call


def test_the_first_command_prints_the_answer_and_writes_the_report(
    tilecast, tmp_path: Path
) -> None:
    ran = tilecast(FIRST, "--report", str(tmp_path / "first"))
    assert ran.code == 0
    for words in ("step time", "throughput", "bound by", "memory", "MBU", "MFU", "bounds"):
        assert words in ran.out
    assert "188 of 432 GB" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "\x1b" not in ran.out
    written = {path.name for path in (tmp_path / "first").iterdir()}
    assert {"index.html", "result.json", "operators.csv", "roofline.svg", "roofline.png"} <= written


def test_json_on_standard_output_is_json_alone_in_base_units(tilecast) -> None:
    ran = tilecast(FIRST, "--json", "-")
    data = json.loads(ran.out)
    assert 5e-3 < data["latency"] < 50e-3
    assert data["throughput"] == pytest.approx(32 / data["latency"])
    assert 0 < data["energy"] < 2500 * data["latency"]
    assert data["bounds"]["lower"] <= data["latency"] <= data["bounds"]["upper"]
    assert ran.err == ""


def test_json_goes_to_a_file_beside_the_table(tilecast, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    ran = tilecast(FIRST, "--json", str(target))
    assert "throughput" in ran.out
    assert json.loads(target.read_text())["workload"] == "llama-3.1-70b"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_json_goes_through_a_pipe_or_a_link_and_leaves_it_standing(
    tilecast, tmp_path: Path
) -> None:
    pipe, link, real = (tmp_path / name for name in ("pipe", "link", "real"))
    os.mkfifo(pipe)
    link.symlink_to(real)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        assert tilecast("list systems --json", str(pipe)).code == 0
        assert "systems" in json.loads(reading.result())
    assert tilecast("list systems --json", str(link)).code == 0
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert "systems" in json.loads(real.read_text())
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link", "real"}


@pytest.mark.parametrize("target", ["/", ".", "", "x" * 300])
def test_json_that_cannot_be_written_is_refused(
    tilecast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tilecast("list systems --json", target)
    assert ran.code == 2
    assert "name a file in a folder that can be written" in ran.err
    ran = tilecast("roofline gemma-3-1b --on h100 -o", f"{'x' * 300}.svg")
    assert ran.code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["check", "show", "run --on h100", "run gemma-3-1b --on"])
def test_what_is_no_file_is_refused(tilecast, tmp_path: Path, command: str) -> None:
    for name in ("pipe.json", "pipe.yaml"):
        os.mkfifo(tmp_path / name)
        ran = tilecast(command, str(tmp_path / name))
        assert ran.code == 2
        assert "is not a regular file" in ran.err
    assert tilecast(command, "x" * 5000).code == 2


def test_show_refuses_an_override_of_another_kind_of_spec(tilecast) -> None:
    ran = tilecast("show h100 --set hidden=5 --set stack.launch.gap=1us")
    assert ran.code == 2
    assert "hidden: has no say here" in ran.err
    assert "launch.gap: has no say here" in ran.err
    assert ran.out == ""


def test_show_accepts_an_override_of_a_system(tilecast) -> None:
    data = json.loads(tilecast("show helios-72 --set scale_up.devices=5 --json -").out)
    values = {entry["path"]: entry["value"] for entry in data["values"]}
    assert values["scale_up.devices"] == 5


@pytest.mark.parametrize("kind", ["hardware", "workloads", "stacks", "systems"])
def test_list_has_every_name(tilecast, kind: str) -> None:
    ran = tilecast(f"list {kind}")
    listed = {line.split()[0] for line in ran.out.splitlines() if line.startswith("  ")}
    assert set(names(kind)) <= listed
    data = json.loads(tilecast(f"list {kind} --json -").out)
    assert [row["name"] for row in data[kind]] == list(names(kind))


def test_show_cites_each_number_of_a_spec(tilecast) -> None:
    ran = tilecast("show mi455x")
    line = next(line for line in ran.out.splitlines() if "memory.hbm4.bandwidth" in line)
    assert "23.3 TB/s" in line
    assert "datasheet" in line
    assert "MI455X product page" in line


def test_show_prints_the_arithmetic_of_a_model(tilecast) -> None:
    data = json.loads(tilecast("show llama-3.1-70b --context 131072 --json -").out)
    assert data["parameters"] == data["active_parameters"] == 70_553_706_496
    assert data["weight_bytes"] == 2 * 70_553_706_496
    assert data["kv_bytes_per_token"] == 327_680
    assert data["kv_bytes_at"] == {"131072": 131072 * 327_680}


def test_show_accepts_a_what_if(tilecast) -> None:
    ran = tilecast("show mi455x --set memory.hbm4.bandwidth=30TB/s")
    line = next(line for line in ran.out.splitlines() if "memory.hbm4.bandwidth" in line)
    assert "30 TB/s" in line
    assert "--set" in line


def test_schema_is_json(tilecast) -> None:
    assert "properties" in json.dumps(json.loads(tilecast("schema hardware").out))


def test_check_names_every_fault_with_file_and_line(tilecast, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    text = Path(__file__).parents[2].joinpath("hw_specs/h100.yaml").read_text()
    good.write_text(text)
    bad.write_text(
        re.sub(r"(?m)^  clock:.*$", "  clock: 1830", text).replace("status: shipping", "staus: x")
    )
    ran = tilecast("check", str(good), str(bad))
    assert ran.code == 2
    assert f"{good}: ok" in ran.out
    faults = [line for line in ran.err.splitlines() if line.startswith(str(bad))]
    assert len(faults) >= 2
    assert all(re.match(rf"{re.escape(str(bad))}:\d+: ", fault) for fault in faults)
    assert any("compute.clock" in fault and "GHz" in fault for fault in faults)


def test_two_unknown_names_are_both_named_with_near_ones(tilecast) -> None:
    ran = tilecast("run lama-3.1-8b --on mi45x")
    assert ran.code == 2
    assert "llama-3.1-8b" in ran.err
    assert "mi455x" in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_what_does_not_fit_exits_3_with_the_shortfall_and_what_would(tilecast) -> None:
    ran = tilecast("run deepseek-v3 --on mi300x --batch 1 --context 1024")
    assert ran.code == 3
    assert "471.3 GB short" in ran.err
    assert "by capacity 4 x mi300x hold it" in ran.err


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("run llama-3.1-8b --on h100 --batch 0", "batch: 0"),
        ("run llama-3.1-8b --on h100 --batch two", "batch"),
        ("run llama-3.1-8b --on h100 --dtype fp7", "fp7"),
        ("run llama-3.1-8b --on h100 --stack cuda-sm99", "cuda-sm99"),
        ("run llama-3.1-8b --on h100 --set compute.clock=2400", "compute.clock"),
        ("run llama-3.1-8b --on h100 --set compute.clok=2.4GHz", "compute.clock"),
        ("run llama-3.1-8b --on h100 --set memory.hbm3.bandwidth", "="),
        ("run llama-3.1-8b --on h100 --phase denoise", "denoise"),
        ("run llama-3.1-8b --on h100 --phase serve", "serve"),
        ("run llama-3.1-8b --on /nowhere.yaml", "/nowhere.yaml"),
        ("run /nowhere/config.json --on h100", "/nowhere/config.json"),
        ("run llama-3.1-8b --on h100 --json /nowhere/x.json", "/nowhere/x.json"),
        ("run llama-3.1-8b", "--on"),
        ("run llama-3.1-8b --on h100 --set memory.\u00b2.bandwidth=1TB/s", "no such path"),
        ("run llama-3.1-8b --on h100 --set groups.0.repeat=1000000000", "at most 4,096"),
        ("run sdxl --on h100 --set middle_transformer_depth=1000000", "at most 4,096"),
        ("run llama-3.1-8b --on h100 --batch 100000 --input 100000", "10,000,000,000 tokens"),
        ("show llama-3.1-8b --context -5", "--context"),
        ("show nosuch", "nosuch"),
        ("verify nosuch", "nosuch"),
        ("verify gemma-3-1b --seed -1", "seed: -1"),
        ("roofline llama-3.1-8b --on h100 -o roofline.gif", "roofline.gif"),
    ],
)
def test_wrong_input_is_one_clear_message_and_exit_2(tilecast, command: str, found: str) -> None:
    ran = tilecast(command)
    assert ran.code == 2
    assert found in ran.err
    assert "Traceback" not in ran.err


def test_roofline_compares_devices(tilecast, tmp_path: Path) -> None:
    picture = tmp_path / "both.svg"
    ran = tilecast("roofline llama-3.1-8b --on h200,mi455x --batch 8 -o", str(picture))
    assert ran.code == 0
    assert "mi455x" in picture.read_text()


def test_roofline_draws_the_devices_that_hold_the_model_and_names_the_others(
    tilecast, tmp_path: Path
) -> None:
    picture = tmp_path / "both.svg"
    ran = tilecast("roofline llama-3.1-70b --on h200,mi455x --batch 32 -o", str(picture))
    assert ran.code == 0
    assert "not drawn: llama-3.1-70b does not fit on 1 x h200" in ran.err
    assert "mi455x" in picture.read_text()
    assert tilecast("roofline llama-3.1-70b --on h200 --batch 32 -o", str(picture)).code == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such devices here")
@pytest.mark.parametrize(("device", "code"), [("/dev/full", 1), ("/dev/null", 0)])
def test_a_stream_that_takes_nothing_is_no_traceback(device: str, code: int) -> None:
    program = "import sys; sys.argv[1:] = ['list']; from simulator.cli import main; main()"
    with open(device, "w") as stream:
        ran = subprocess.run(
            [sys.executable, "-c", program], stdout=stream, stderr=subprocess.PIPE, text=True
        )
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", ["run {} --on h200", "compare {} --on h200,mi355x"])
def test_a_reader_that_leaves_early_costs_neither_the_report_nor_the_exit_code(
    command: str, tmp_path: Path
) -> None:
    program = "from simulator.cli import main; main()"
    words = f"{command.format('llama-3.1-8b')} --report {tmp_path / 'report'}".split()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        ran = subprocess.run(
            [sys.executable, "-c", program, *words],
            stdout=stream,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "report" / "index.html").exists()


@pytest.mark.parametrize("made", ["file", "loop"])
def test_a_report_in_what_is_no_directory_says_so(made: str, tilecast, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch() if made == "file" else home.symlink_to(home)
    ran = tilecast("run llama-3.1-8b --on h200 --report", str(home / "report"))
    assert ran.code == 2
    assert "lies in what is no directory" in ran.err


def test_one_device_by_two_names_is_not_planned_twice(tilecast) -> None:
    ran = tilecast("plan llama-3.1-8b --on h200,h200_sxm --devices 1")
    assert ran.code == 2
    assert "h200: is named twice" in ran.err


def test_no_line_of_a_sensitivity_is_over_80_columns_whatever_the_name(
    tilecast, tmp_path: Path
) -> None:
    spec = tmp_path / "long.yaml"
    spec.write_text(f"base: h200\nname: {'n' * 300}\n")
    ran = tilecast("sensitivity llama-3.1-8b --top 3 --on", str(spec))
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; import simulator.cli.app; "
        "heavy = {'matplotlib', 'pint', 'numpy', 'simpy', 'jinja2', 'torch', 'yaml'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("command", ["list systems", "schema systems", "show h100"])
def test_a_closed_stream_is_no_fault(command: str, closed: str) -> None:
    run = f'"$0" -c "from simulator.cli import main; main()" {command} {closed}'
    ran = subprocess.run(["sh", "-c", run, sys.executable], capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        "run gpt-oss-120b --on mi455x --batch 64",
        "run llama-3.1-8b --on a100 --dtype fp8 --context 300",
        "run llama-3.1-70b --on mi455x --dtype mxfp4 --set memory.hbm4.bandwidth=30TB/s",
        "run llama-3.1-8b --on h200 --input 100 --output 7 --stack cuda-sm100 --seed 3",
        "run sdxl --on mi300x --fidelity roofline",
    ],
)
def test_the_command_in_a_result_gives_the_same_answer(tilecast, command: str) -> None:
    first = json.loads(tilecast(command, "--json", "-").out)
    again = first["provenance"]["command"]
    assert again.startswith("tilecast run ")
    words = shlex.split(again)[1:]
    assert json.loads(tilecast("", *words, "--json", "-").out) == first


def test_the_header_tells_the_format_of_the_weights_from_that_of_the_products(tilecast) -> None:
    assert "mxfp4 weights in bf16 products" in tilecast("run gpt-oss-20b --on mi455x").out
    assert ", bf16, " in tilecast("run llama-3.1-8b --on mi455x").out


def test_version(tilecast) -> None:
    assert re.fullmatch(r"tilecast \d+\.\d+\.\d+\n", tilecast("--version").out)


def test_a_name_that_says_fp8_without_a_quantisation_is_warned_about(
    tilecast, tmp_path: Path
) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
        "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
        "hidden_act": "silu", "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
    }  # fmt: skip
    path = tmp_path / "Tiny-FP8.json"
    path.write_text(json.dumps(config))
    assert "the name says FP8" in tilecast("run", str(path), "--on", "h200").out
    assert (
        "the name says FP8" not in tilecast("run", str(path), "--on", "h200", "--dtype", "fp8").out
    )


def test_a_fit_is_listed_and_shown_with_its_data_and_errors(tilecast) -> None:
    assert "gemm" in tilecast("list fits").out
    data = json.loads(tilecast("show gemm --json -").out)
    assert data["rows"] > 1000
    assert data["libraries"]["cublas"]["devices"]
    assert data["scores"][0]["mean"] > 0


def test_a_stack_is_shown_with_the_libraries_that_run(tilecast) -> None:
    rules = json.loads(tilecast("show cuda-sm90 --json -").out)["libraries"]
    found = [rule["library"] for rule in rules if (rule["model"], rule["for"]) == ("gemm", "fp8")]
    assert "cutlass-fp8" in found
