"""What the command line refuses, and that it does so before any process starts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from acme_quant.launch import cli
from acme_quant.launch.commands import train
from acme_quant.launch.settings import checks
from acme_quant.launch.settings.config import UsageError

PROGRAM = "acme-quant train"


def refusal(workdir: pathlib.Path, *arguments: str) -> str:
    """Returns the one sentence with which a request is refused."""
    with pytest.raises(UsageError) as error:
        run = checks.parse([PROGRAM, f"--workdir={workdir}", *arguments])
        checks.prepare(run)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "argument,expected",
    [
        ("--agent=dgpg", "dgpg"),
        ("--quantizer=int9", "int9"),
        ("--env=dm_control:cartpole:balanse", "balanse"),
        ("--env=nonsense", "nonsense"),
        ("--env=gym:CartPole-v1", "continuous"),
        ("--no_such_flag=1", "no_such_flag"),
        ("--num_actors=two", "two"),
        ("--num_actors=-1", "num_actors"),
        ("--actor=torch", "torch"),
        ("--activations=4bit", "4bit"),
        ("--communication=int8", "int8"),
        ("--policy_layers=a,b", "a,b"),
        ("--epsilon=0.1", "dqn"),
        ("left_over", "left_over"),
    ],
)
def test_bad_request_is_refused_in_one_sentence(
    tmp_path: pathlib.Path, argument: str, expected: str
) -> None:
    assert expected in refusal(tmp_path, argument)


@pytest.mark.parametrize("agent", ["d4pg", "dqn"])
@pytest.mark.parametrize(
    "argument",
    [
        *("--n_step=0", "--discount=1.5", "--discount=nan", "--batch_size=0"),
        *("--learning_rate=nan", "--learning_rate=-1", "--learning_rate=inf"),
        *("--samples_per_insert=-1", "--samples_per_insert=inf", "--log_every_s=-1"),
        *("--target_update_period=0", "--min_replay_size=1", "--max_replay_size=0"),
        *("--checkpoint_every_s=nan", "--step_timeout_s=inf", "--action_limit=-1"),
        *("--sticky_actions=1", "--publish_period_s=nan", "--log_every_s=nan"),
    ],
)
def test_nonsense_numbers_are_refused_for_every_agent(
    tmp_path: pathlib.Path, agent: str, argument: str
) -> None:
    # The environment does not exist: numbers are refused before it is made.
    text = refusal(tmp_path, f"--agent={agent}", "--env=none:none", argument)
    assert argument.split("=")[0] in text and "expected" in text


@pytest.mark.parametrize(
    "argument",
    [
        *("--sigma=-1", "--sigma=nan", "--sigma_spread=2", "--num_atoms=1"),
        *("--value_bound=0", "--value_bound=-1", "--value_bound=inf"),
        *("--policy_layers=0", "--policy_layers=", "--critic_layers=8,-1"),
    ],
)
def test_d4pgs_nonsense_numbers_are_refused(
    tmp_path: pathlib.Path, argument: str
) -> None:
    assert argument.split("=")[0] in refusal(tmp_path, "--env=none:none", argument)


@pytest.mark.parametrize(
    "argument",
    [
        *("--epsilon=1.5", "--epsilon=nan", "--epsilon_exponent=-1", "--q_layers=0"),
        *("--epsilon_decay_steps=-1", "--priority_exponent=inf", "--network=cnn"),
        "--importance_sampling_exponent=2",
    ],
)
def test_dqns_nonsense_numbers_are_refused(
    tmp_path: pathlib.Path, argument: str
) -> None:
    text = refusal(tmp_path, "--agent=dqn", "--env=none:none", argument)
    assert argument.split("=")[0] in text


def test_replay_that_can_never_give_a_batch_is_refused(tmp_path: pathlib.Path) -> None:
    text = refusal(
        tmp_path, "--batch_size=256", "--min_replay_size=100", "--max_replay_size=200"
    )
    assert "256" in text and "200" in text


def test_rate_that_reverb_would_refuse_is_refused(tmp_path: pathlib.Path) -> None:
    text = refusal(tmp_path, "--samples_per_insert=0.01", "--min_replay_size=100")
    assert "0.01" in text and "rate limiter" in text


def test_flag_that_would_change_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    text = refusal(tmp_path, "--actor=acme", "--quantizer=float16")
    assert "quantizer" in text and "acme" in text


@pytest.mark.parametrize(
    "argument",
    [
        "--actor=acme",
        "--actor_failures=stop",
        "--checkpoint_replay",
        "--colocate_quantizer",
        "--envs_per_actor=2",
        "--lp_launch_type=local_mt",
        "--publish_period_s=2",
        "--max_actor_restarts=1",
    ],
)
def test_settings_of_processes_are_refused_for_a_run_in_one(
    tmp_path: pathlib.Path, argument: str
) -> None:
    text = refusal(tmp_path, "--num_actors=0", argument)
    assert argument.split("=")[0] in text and "--num_actors" in text


def test_two_ways_to_time_publications_are_refused(tmp_path: pathlib.Path) -> None:
    text = refusal(tmp_path, "--publish_period=10", "--publish_period_s=2")
    assert text.endswith("got both: 10 and 2.0.")


def test_missing_workdir_is_refused() -> None:
    with pytest.raises(UsageError, match="workdir"):
        run = checks.parse([PROGRAM])
        checks.prepare(run)


def test_workdir_that_cannot_be_made_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refusal(tmp_path / "file" / "run")


def test_refusal_exits_with_2_and_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([PROGRAM, f"--workdir={tmp_path}", "--agent=nobody"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "nobody" in captured.err
    assert not captured.out


def test_no_folder_for_temporary_files_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    monkeypatch.setattr("sys.argv", ["acme-quant", "train"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "set TMPDIR" in error and error.count("\n") == 1


def test_help_lists_flags_of_run_and_agents(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train.main([PROGRAM, "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--quantizer", "--sigma", "--workdir", "--lp_launch_type"):
        assert flag.removeprefix("--") in text


def test_flagfile_gives_flags(tmp_path: pathlib.Path) -> None:
    flagfile = tmp_path / "flags.txt"
    flagfile.write_text("--num_actors=3\n--sigma=0.2\n# a comment\n")
    run = checks.parse([PROGRAM, f"--flagfile={flagfile}"])
    assert run.config.num_actors == 3
    assert run.agent_config.sigma == 0.2


def test_resolved_configuration_is_json_of_all_settings(tmp_path: pathlib.Path) -> None:
    import json

    run = checks.parse([PROGRAM, f"--workdir={tmp_path}", "--policy_layers=8,9"])
    settings = json.loads(run.to_json())
    assert settings["policy_layers"] == [8, 9]
    assert settings["quantizer"] == "int8"


def test_nodes_get_different_seeds(tmp_path: pathlib.Path) -> None:
    run = checks.parse([PROGRAM, "--seed=3"])
    other = checks.parse([PROGRAM, "--seed=4"])
    names = ("learner", "actor_0", "actor_1", "evaluator")
    assert len({run.node_seed(name) for name in names}) == len(names)
    assert run.node_seed("learner") != other.node_seed("learner")
    assert run.node_seed("learner") == run.node_seed("learner")


def test_the_page_of_flags_tells_every_flag_and_its_help() -> None:
    import dataclasses

    from acme_quant import agents
    from acme_quant.launch.settings.config import RunConfig

    agent_config = agents.get("d4pg").Config
    page = (pathlib.Path(__file__).parents[3] / "docs" / "flags.md").read_text()
    for config in (RunConfig, *(agents.get(name).Config for name in agents.AGENTS)):
        for field in dataclasses.fields(config):
            assert f"`--{field.name}`" in page
    # Settings that agents share have one row; the words may differ a little.
    for field in (*dataclasses.fields(RunConfig), *dataclasses.fields(agent_config)):
        assert field.metadata["help"] in page


@pytest.mark.parametrize(
    "arguments",
    ["--help", "train --help", "evaluate --help", "compare --help", "bench adder -h"],
)
def test_a_reader_that_leaves_gets_no_traceback(arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = "from acme_quant.launch import cli; cli.main()"
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-c", command, *arguments.split()],
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=100,
            check=False,
        )
    assert ended.stderr == b""
    assert ended.returncode in (0, 141)
