"""What one viewer may see of a moment: models without the rest, and the parts of a gang's page."""

import asyncio
from collections import OrderedDict

import msgspec

from gangsched.web.keeper import ComputingError, ModelKeeper
from gangsched.web.model import GangRow, PageModel
from gangsched.web.moments import JournalMoments
from gangsched.web.rights import Rights, visible_part
from gangsched.web.views.pages import GangParts, NoPageError
from gangsched.web.what_if import WhatIfAnswer, WhatIfChange, check_visible, visible_answer

_KEPT = 8


class VisibleModels:
    """The models of the present, or of the moments of a journal, as viewers see them."""

    def __init__(self, shown: ModelKeeper | JournalMoments) -> None:
        self._shown = shown
        self._parts: OrderedDict[tuple[int, int, Rights], PageModel] = OrderedDict()

    @property
    def present(self) -> ModelKeeper | None:
        """Return the keeper of the present; None for a journal."""
        return self._shown if isinstance(self._shown, ModelKeeper) else None

    async def keeper(self, moment: str | None) -> ModelKeeper:
        """Return the keeper of a moment, None for the present or the end of the journal.

        Raises:
            ReadingBusyError: too many moments are read now.

        """
        if isinstance(self._shown, ModelKeeper):
            return self._shown
        return await self._shown.keeper(self._shown.last_s if moment is None else float(moment))

    def moment_at(self, part: float) -> float:
        """Return the moment after a part of the journal's time, from 0 to 1.

        Raises:
            NoPageError: no journal is shown.

        """
        if isinstance(self._shown, ModelKeeper):
            raise NoPageError("Only a journal has other moments.")
        return self._shown.moment_at(part)

    async def model(self, keeper: ModelKeeper, rights: Rights) -> PageModel:
        """Return the model of a keeper as a viewer with these rights sees it."""
        if keeper.source.live:
            model = keeper.model or await keeper.after(0)
        else:
            model = await keeper.with_starts()
        key = keeper.number, model.version, rights
        known = self._parts.get(key)
        if known is None:
            work = asyncio.to_thread(visible_part, model, rights, keeper.source.redact)
            known = self._parts[key] = await work
            while len(self._parts) > _KEPT:
                self._parts.popitem(last=False)
        return known

    async def gang(
        self, keeper: ModelKeeper, rights: Rights, name: str
    ) -> tuple[GangRow, GangParts]:
        """Return a gang that the viewer may see, and what its page shows.

        Raises:
            NoPageError: there is no such gang, or the viewer may not see it.

        """
        row = (await self.model(keeper, rights)).gangs.get(name)
        if row is None:
            raise NoPageError(f"There is no gang {name[:200]!r}.")
        remedies: tuple[tuple[str, ...], str] = (), ""
        redact = keeper.source.redact
        if row.waits:
            try:
                messages = await keeper.remedies(name)
                if not rights.everything:
                    messages = tuple(redact(message, name) for message in messages)
                remedies = messages, ""
            except ComputingError as error:
                remedies = (), str(error)
        story = keeper.story(name)
        if not rights.everything:
            story = tuple(
                msgspec.structs.replace(line, text=redact(line.text, name)) for line in story
            )
        return row, GangParts(keeper.pods(name), remedies, story)

    async def what_if(
        self, keeper: ModelKeeper, rights: Rights, change: WhatIfChange
    ) -> WhatIfAnswer:
        """Return which starts of the viewer's gangs a change would change.

        Raises:
            WhatIfError: the change is malformed, or names what the viewer may not see.

        """
        check_visible(change, await self.model(keeper, rights))
        answer = await keeper.what_if(change)
        return visible_answer(answer, await self.model(keeper, rights))
