"""Tasks of a Django application, in a `TransactionTestCase`, as the how-to on tests has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.reading import ROOT, blocks

TEST = """
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:",
                           "TEST": {"NAME": "file:tests?mode=memory&cache=shared"}}},
    INSTALLED_APPS=["django.contrib.contenttypes"],
)
django.setup()

from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import get_runner

from fairlead import Fairlead
from middleware import Connections

app = Fairlead("sqlite:////nowhere/tasks.db", middleware=[Connections()])


@app.task
def count(label: str) -> int:
    return ContentType.objects.filter(app_label=label).count()


@app.task
async def acount(label: str) -> int:
    return await ContentType.objects.filter(app_label=label).acount()


class Committed(TransactionTestCase):
    def setUp(self):
        self.rehearsal = self.enterContext(app.testing())

    def test_handlers_see_what_the_test_has_written(self):
        ContentType.objects.create(app_label="shop", model="cart")
        tasks = [count.submit_sync("shop"), acount.submit_sync("shop")]
        self.assertEqual(self.rehearsal.run_sync(), 2)
        self.assertEqual([task.result_sync() for task in tasks], [1, 1])


class OnCommit(TestCase):
    def setUp(self):
        self.rehearsal = self.enterContext(app.testing())

    def test_what_is_submitted_on_commit_is_submitted(self):
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: count.submit_sync("none"))
            self.assertEqual(self.rehearsal.run_sync(), 0)
        self.assertEqual(self.rehearsal.run_sync(), 1)


def main():
    sys.exit(get_runner(settings)(verbosity=1, interactive=False).run_tests(["django_tests"]))
"""


def test_handlers_use_the_database_of_a_django_test(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "test-your-tasks.md"
    (middleware,) = [block for block in blocks(page) if "close_old_connections" in block.body]
    (tmp_path / "middleware.py").write_text(middleware.body)
    (tmp_path / "django_tests.py").write_text(TEST)

    ran = subprocess.run(
        [sys.executable, "-c", "import django_tests; django_tests.main()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Ran 2 tests" in ran.stderr
