import secrets

import pytest

from plaudit.collect.passwords import checked_password, fits, hash_password, is_common
from plaudit.collect.refusals import FieldError

USUAL = """
password Password1 P@ssw0rd passw0rd123 password2024! qwertyuiop qwerty123 qwerty123456 1qaz2wsx zaq12wsx
q1w2e3r4t5 1q2w3e4r5t asdfghjkl zxcvbnm123 asdfasdf 12345678 123456789 1234567890 87654321 11111111
00000000 12341234 123123123 11223344 12344321 147258369 741852963 789456123 123456abc abc12345 abcd1234
a1b2c3d4 aaaaaaaa abcabcabc iloveyou ILoveYou2 sunshine princess1 football baseball1 superman batman123
starwars michael1 jennifer jessica! charlie1 liverpool1 chelsea123 welcome1 letmein! letmein123 trustno1
whatever dragon12 monkey123 m0nkey12 master12 shadow99 computer internet samsung1 pokemon123 minecraft
changeme admin123 administrator root1234 19840712 12071984 07121984 hallo123 passwort1 schatz123 bonjour1
motdepasse azertyuiop contrasena tequiero passwordpassword monkeymonkey qweasdzxc
contraseña lösenord пароль123 йцукенгш aa123456 a123456789 password12345678 superstar ilovegod mypassword
"""


@pytest.mark.parametrize("word", USUAL.split())
def test_what_everybody_tries_first_is_refused_and_not_repeated(word: str) -> None:
    with pytest.raises(FieldError) as refused:
        checked_password(word)
    assert refused.value.found == "one of those that are tried first"


@pytest.mark.parametrize("word", ["Lovelace", "ada1815!", "AdaLovelace", "helpful22", "Âdalovelace"])
def test_ones_own_name_and_the_projects_are_no_passwords(word: str) -> None:
    assert is_common(word, "Ada Lovelace", "helpful")


@pytest.mark.parametrize(
    "word",
    [
        "a horse in the rain",
        "correct staple",
        "Zimtsternkuchen am See",
        "vx7kq2mw",
        "пароль мой 7",
        "ü" * 3 + "ßetqaz",
    ],
)
def test_words_of_ones_own_are_taken_without_rules_of_composition(word: str) -> None:
    assert checked_password(word, "Ada", "helpful") == word


def test_what_a_machine_draws_is_never_called_common() -> None:
    assert not any(is_common(secrets.token_urlsafe(9)) for _ in range(500))


def test_eight_characters_are_enough_and_two_hundred_are_taken_to_the_last() -> None:
    with pytest.raises(FieldError, match="found 7 characters"):
        checked_password("vx7kq2m")
    with pytest.raises(FieldError, match="at most 200"):
        checked_password("vx7kq2m " * 25 + "x")
    long = secrets.token_hex(100)
    stored = hash_password(checked_password(long))
    assert stored.startswith("$argon2id$")
    assert fits(stored, long)
    # No truncation: the last letter counts too.
    assert not fits(stored, long[:-1] + ("a" if long[-1] != "a" else "b"))


def test_one_letter_of_two_code_points_is_the_same_letter() -> None:
    assert fits(hash_password("garc\u0327on in the rain"), "gar\u00e7on in the rain")


def test_nothing_fits_where_nothing_is_stored() -> None:
    assert not fits(None, "")
    assert not fits("no hash at all", "a horse in the rain")
