"""Every error says whether the request happened, and survives pickling."""

import pickle

import pytest

from antiphon import errors

SIMPLE = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type)
    and issubclass(cls, errors.JMSError)
    and cls is not errors.JournalDamagedError
]
REFUSALS = {
    errors.ConfigurationError,
    errors.IllegalStateError,
    errors.InvalidClientIDError,
    errors.InvalidDestinationError,
    errors.InvalidSelectorError,
    errors.MessageEOFError,
    errors.MessageFormatError,
    errors.MessageNotReadableError,
    errors.MessageNotWriteableError,
    errors.MessagesGoneError,
    errors.ResourceAllocationError,
    errors.SecurityError,
    errors.TransactionInProgressError,
    errors.TransactionRolledBackError,
}


@pytest.mark.parametrize("cls", SIMPLE)
def test_each_class_has_its_default_for_happened(cls: type[errors.JMSError]) -> None:
    assert cls("text").happened == ("no" if cls in REFUSALS else "unknown")


def test_a_class_that_says_nothing_of_it_is_unknown() -> None:
    class NewError(errors.JMSError):
        pass

    assert NewError("text").happened == "unknown"


@pytest.mark.parametrize("cls", SIMPLE)
def test_errors_pickle_with_text_and_happened(cls: type[errors.JMSError]) -> None:
    for happened in ("no", "unknown"):
        copy = pickle.loads(pickle.dumps(cls("queue 'pay' is full", happened=happened)))
        assert type(copy) is cls
        assert (str(copy), copy.happened) == ("queue 'pay' is full", happened)


def test_a_damaged_journal_names_file_and_offset_also_after_pickling() -> None:
    error = errors.JournalDamagedError("0001.log", 4096, "bad checksum", happened="unknown")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.file, copy.offset, copy.detail) == ("0001.log", 4096, "bad checksum")
    assert copy.happened == "unknown"
    assert str(copy) == "journal file '0001.log' is damaged at offset 4096: bad checksum"


def test_an_unknown_outcome_is_also_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        raise errors.OutcomeUnknownError("no answer within 5.0 s")


def test_the_docstring_draws_every_class() -> None:
    drawing = errors.__doc__ or ""
    assert [cls.__name__ for cls in SIMPLE if cls.__name__ not in drawing] == []
    assert errors.JournalDamagedError.__name__ in drawing
