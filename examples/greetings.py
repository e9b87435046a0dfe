"""The smallest app: one task, submitted and waited for.

fairlead worker greetings:app
python greetings.py Ada
"""

from __future__ import annotations

import asyncio
import sys

from fairlead import Fairlead, Reject

app = Fairlead("sqlite:///tasks.db")


@app.task(priority="high", timeout=30, max_retries=5)
async def greet(name: str, times: int = 1) -> str:
    if not name.strip():
        raise Reject("nobody to greet")  # no retry would help
    return ", ".join([f"hello {name}"] * times)


async def main(names: list[str]) -> None:
    tasks = await greet.submit_many(greet.call(name) for name in names)
    for task in tasks:
        print(await task.result(timeout=60))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
