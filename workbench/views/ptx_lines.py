"""Which PTX instructions came from which line of a kernel, hence from which nodes. Invariant: the compiler's own line table.

`.loc` directives say it: file, line, column, and for inlined code `inlined_at` with the place of the call, which an earlier
directive may have inlined elsewhere again (the latest one of that place). An instruction belongs to the innermost line of
that chain that lies in the kernel's own text, since lines of the device header before it are about no node.
Source: PTX ISA 9.0, section 11.5.5 (".loc"); "-lineinfo" of NVRTC and nvcc.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.views.code_lines import CodeLine, link_of
from workbench.views.markup import paragraph, showing, words

_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s+(\d+)(?:.*inlined_at\s+\d+\s+(\d+)\s+(\d+))?")
_CALLS = 64  # a chain of inlined calls is not followed further

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PtxLine:
    """An instruction or label. Attributes: number: in the PTX, from 1; text; cuda: line of the kernel, 0 if of none."""

    number: int
    text: str
    cuda: int


def ptx_lines(ptx: str, *, header_lines: int, body_lines: int) -> tuple[PtxLine, ...]:
    """Return what stands between the braces of the entry functions, without the directives that tell lines.

    header_lines: lines of the source before the kernel's text; body_lines: lines of that text.
    """
    found = []
    calls: dict[Place, Place | None] = {}
    now, depth = 0, 0
    for number, text in enumerate(ptx.split("\n"), 1):
        directive = _LOC.match(text)
        if directive:
            place = int(directive[1]), int(directive[2])
            calls[place] = (int(directive[3]), int(directive[4])) if directive[3] else None
            now = _own_line(place, calls, header_lines, body_lines)
            continue
        if text.startswith("{"):
            depth += 1
        elif text.startswith("}"):
            depth, now = depth - 1, 0
        elif depth and text.strip() and not text.strip().startswith(("//", ".reg")):
            found.append(PtxLine(number, text.replace("\t", " ").strip(), now))
    return tuple(found)


def _own_line(place: Place, calls: dict[Place, Place | None], header_lines: int, body_lines: int) -> int:
    """Return the innermost line of a chain of calls that lies in the kernel's text, from 1; 0 if none does."""
    at: Place | None = place
    for _ in range(_CALLS):
        if at is None:
            break
        line = at[0] - header_lines
        if 1 <= line <= body_lines:
            return line
        at = calls.get(at)
    return 0


def ptx_of(ptx: Sequence[PtxLine], code: Sequence[CodeLine], chosen: str) -> tuple[PtxLine, ...]:
    """Return the instructions of a node or of a line (`link_of`) that is chosen; all of them for ""."""
    if not chosen:
        return tuple(ptx)
    wanted = {line.number for line in code if chosen in line.links or chosen == link_of(line.number)}
    return tuple(line for line in ptx if line.cuda in wanted)


def ptx_html(ptx: Sequence[PtxLine], code: Sequence[CodeLine], chosen: str, *, limit: int) -> str:
    """Return instructions with the line of CUDA that each came from; of what is chosen, else from the first on.

    limit: instructions at most; what is left out is said.
    """
    links = {line.number: line.links for line in code}
    own = ptx_of(ptx, code, chosen)
    if chosen and not own:
        told = f"no instruction is of {chosen.replace(':', ' ')} alone: the compiler merged it with its neighbours"
        return paragraph(told, "wb-quiet")
    place = {line.number: number for number, line in enumerate(ptx)}
    parts = []
    for line, before in zip(own[:limit], (None, *own), strict=False):
        if before is not None and place[line.number] > place[before.number] + 1:
            parts.append('<div class="wb-quiet">⋯</div>')
        link = f' data-link="{" ".join((*links.get(line.cuda, ()), link_of(line.cuda)))}"' if line.cuda else ""
        cuda = str(line.cuda) if line.cuda else ""
        parts.append(
            f'<div{link}><span class="wb-line-number">{line.number}</span><span class="wb-line-number" '
            f'title="line of CUDA">{cuda}</span>{words(line.text)}</div>'
        )
    told = (
        f"{len(own):,} of {len(ptx):,} instructions and labels; left, the line of PTX and the line of CUDA it came from"
    )
    cut = showing(min(limit, len(own)), len(own), "lines", "choose a node or a line of CUDA, or raise ptx_limit")
    return paragraph(told + (f"; {cut}" if cut else ""), "wb-quiet") + f'<div class="wb-code">{"".join(parts)}</div>'
