"""A web shop: FastAPI takes orders, a worker bills them, both on one database by SQLAlchemy.

fairlead worker shop:tasks
uvicorn shop:web
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fairlead import Depends, Fairlead, Reject, TaskContext, TaskNotFound


class Item(BaseModel):
    name: str
    price: Annotated[Decimal, Field(gt=0)]
    count: Annotated[int, Field(ge=1)] = 1


class Cart(BaseModel):
    customer: str
    items: Annotated[list[Item], Field(min_length=1)]


class Receipt(BaseModel):
    order: int
    total: Decimal
    billed_at: datetime


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    total: Mapped[Decimal | None]


class Database:
    """What the web application and each worker open once."""

    def __init__(self, url: str) -> None:
        self.engine = create_async_engine(url)
        self.session = async_sessionmaker(self.engine, expire_on_commit=False)


@asynccontextmanager
async def database() -> AsyncIterator[Database]:
    opened = Database(os.environ.get("SHOP_DATABASE", "sqlite+aiosqlite:///shop.db"))
    try:
        async with opened.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield opened
    finally:
        await opened.engine.dispose()


@asynccontextmanager
async def lifespan(app: Fairlead) -> AsyncIterator[Database]:
    async with database() as opened:
        yield opened


async def session(context: TaskContext) -> AsyncIterator[AsyncSession]:
    """A session for each attempt, committed when the handler has returned."""
    async with context.state(Database).session() as db, db.begin():
        yield db


tasks = Fairlead(lifespan=lifespan)


@tasks.task(priority="high", max_retries=5, reject_on=[LookupError])
async def bill(order: int, cart: Cart, *, at: datetime, db: AsyncSession = Depends(session)) -> Receipt:
    row = await db.get(Order, order)
    if row is None:
        raise Reject(f"there is no order {order}")
    # The same in every attempt, so it may run twice.
    row.total = total = sum((item.price * item.count for item in cart.items), Decimal())
    return Receipt(order=order, total=total, billed_at=at)


@asynccontextmanager
async def open_web(app: FastAPI) -> AsyncIterator[None]:
    async with database() as app.state.database:
        yield
    await tasks.close()


web = FastAPI(lifespan=open_web)


@web.post("/orders", status_code=202)
async def order(cart: Cart, at: datetime) -> dict[str, str | int]:
    opened: Database = web.state.database
    async with opened.session() as db, db.begin():
        row = Order(customer=cart.customer, total=None)
        db.add(row)
    handle = await bill.options(idempotency_key=f"bill-{row.id}").submit(row.id, cart, at=at)
    return {"order": row.id, "task": handle.id}


@web.get("/receipts/{task}")
async def receipt(task: str) -> Receipt | None:
    try:
        return (await bill.handle(task).info()).result
    except TaskNotFound as error:
        raise HTTPException(404, str(error)) from None


@web.get("/orders")
async def orders() -> list[tuple[int, str, Decimal | None]]:
    opened: Database = web.state.database
    async with opened.session() as db:
        rows = await db.scalars(select(Order).order_by(Order.id))
        return [(row.id, row.customer, row.total) for row in rows]
