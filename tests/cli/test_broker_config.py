from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.config import SettingError, load, misspelt_variables


def write(folder: Path, text: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(text)
    return file


def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'num.partitions = 2\nlog.retention.hours = 2\nlisten = "127.0.0.1:2"\ndata = "from-file"\n')
    environment = {"PENSTOCK_NUM_PARTITIONS": "3", "PENSTOCK_LOG_RETENTION_HOURS": "3"}
    settings = load(file, environment, {"num.partitions": "4"}, {"data": "default", "node.id": "9"})
    assert settings.get("num.partitions") == 4
    assert settings.get("log.retention.hours") == 3
    assert settings.get("listen") == "127.0.0.1:2"
    assert settings.get("data") == "from-file"
    assert settings.get("node.id") == 9


def test_nothing_given_is_all_defaults() -> None:
    assert load().get("listen") == "127.0.0.1:9092"


def test_tables_dotted_keys_and_quoted_keys_are_the_same(tmp_path: Path) -> None:
    tables = write(tmp_path, '[log.retention]\nhours = 5\n[log.cleaner]\nenable = false\n["group.max"]\nsize = 3\n')
    settings = load(tables)
    assert settings.get("log.retention.hours") == 5
    assert settings.get("log.cleaner.enable") is False
    assert settings.get("group.max.size") == 3


def test_a_list_is_written_with_commas(tmp_path: Path) -> None:
    settings = load(write(tmp_path, 'log.cleanup.policy = ["compact", "delete"]\n'))
    assert settings.topic_default("cleanup.policy") == ("compact", "delete")


def test_the_later_of_two_names_of_one_setting_counts(tmp_path: Path) -> None:
    assert load(write(tmp_path, "broker.id = 3\n"), {}, {"node.id": "4"}).get("node.id") == 4
    assert load(write(tmp_path, "node.id = 3\n"), {"PENSTOCK_BROKER_ID": "4"}).get("node.id") == 4


def test_an_unknown_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SettingError, match=r"num\.partition.*Did you mean num\.partitions\?"):
        load(command_line={"num.partition": "3"})


def test_a_mistake_in_the_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"penstock\.toml: .*num\.partitions"):
        load(write(tmp_path, 'num.partitions = "many"\n'))


@pytest.mark.parametrize(
    ("text", "reason"), [("= 3", "not TOML"), ("data = 2026-05-01\n", "data is neither"), ("\xff", "not TOML")]
)
def test_a_file_that_can_not_be_read_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingError, match=reason):
        load(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file"):
        load(tmp_path / "none.toml")


def test_a_mistake_in_the_environment_says_so() -> None:
    with pytest.raises(SettingError, match=r"environment: .*num\.partitions"):
        load(environment={"PENSTOCK_NUM_PARTITIONS": "many"})


def test_variables_that_are_no_settings_are_left_alone() -> None:
    kubernetes = {"PENSTOCK_SERVICE_HOST": "10.0.0.1", "PENSTOCK_PORT_9092_TCP": "tcp://10.0.0.1:9092"}
    assert load(environment={**kubernetes, "PENSTOCK_BOOTSTRAP": "there:1"}).get("listen") == "127.0.0.1:9092"
    assert misspelt_variables(kubernetes) == []


def test_a_misspelt_variable_is_pointed_out() -> None:
    (line,) = misspelt_variables({"PENSTOCK_NUM_PARTITION": "3", "PENSTOCK_NUM_PARTITIONS": "4"})
    assert line == "PENSTOCK_NUM_PARTITION is not a setting and was ignored; did you mean PENSTOCK_NUM_PARTITIONS?"
