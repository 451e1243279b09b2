"""Loops of the CPU kernels in vector instructions, written in LLVM's language for Numba.

A compiler turns a loop over documents into vector instructions, but keeps no sums in registers over the loop around it,
and handles what its vectors leave over one number at a time: with the 10 to 60 documents of a query that is most of the
work. Here a *tile* is 8 or 16 neighbouring documents of a query, and what a loop adds up for a tile stays in registers
until it is complete. LLVM maps the vectors to those that the processor has.

Every number is added up in the order of the features, whatever the tile and whoever else is computed: scores do not
depend on the company they are computed in, to the last bit.
"""

from __future__ import annotations

from fedrank.core.compiled import intrinsic

#: Rows of weights whose products are in registers at a time, for tiles of 16 and of 8 documents.
ROWS = {16: 6, 8: 12}


def _pieces(lanes):
    """Types of LLVM for a tile of ``lanes`` documents, and builders of what its instructions need."""
    from llvmlite import ir
    from numba.core import cgutils

    f32, i32 = ir.FloatType(), ir.IntType(32)
    vector, whole = ir.VectorType(f32, lanes), ir.VectorType(i32, lanes)

    class Pieces:
        """See :func:`_pieces`."""

        floats, ints = vector, whole
        zero = ir.Constant(vector, [ir.Constant(f32, 0.0)] * lanes)
        no_ints = ir.Constant(whole, [ir.Constant(i32, 0)] * lanes)
        numbers = ir.Constant(whole, [ir.Constant(i32, k) for k in range(lanes)])

        @staticmethod
        def all_of(value):
            return ir.Constant(whole, [ir.Constant(i32, value)] * lanes)

        @staticmethod
        def spread(builder, scalar, kind):
            """A scalar in all lanes."""
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, i32(0))
            return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), no_lanes)

        @staticmethod
        def load(builder, pointer, kind):
            return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)

        @staticmethod
        def store(builder, value, pointer):
            builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)

        @staticmethod
        def add_product(builder, a, b, c):
            """a·b + c, rounded once where the processor can."""
            name = f"llvm.fmuladd.v{lanes}f32"
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector, vector, vector]), name
            )
            return builder.call(function, [a, b, c])

    no_lanes = ir.Constant(whole, [ir.Constant(i32, 0)] * lanes)
    return Pieces


def _array(context, builder, kind, value):
    """Pointer to the first element of an array in C order, and its shape."""
    from numba.core import cgutils

    array = context.make_array(kind)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape)


def _at(builder, pointer, *terms):
    """The pointer moved by a sum of numbers of elements."""
    for term in terms:
        pointer = builder.gep(pointer, [term])
    return pointer


def _sums(builder, pieces, rows, block, width, weights, apart, n_features, begin):
    """For each of ``rows`` rows of weights: ``begin`` + Σ_j weight[j]·x[j], as values in registers after the loop.

    ``block`` points to the tile's first document, ``weights`` to the first row; rows are ``apart`` elements apart.
    """
    from llvmlite import ir

    intp = n_features.type
    before, loop = builder.block, builder.append_basic_block("features")
    after = builder.append_basic_block("summed")
    builder.cbranch(builder.icmp_signed(">", n_features, ir.Constant(intp, 0)), loop, after)
    builder.position_at_end(loop)
    j = builder.phi(intp)
    j.add_incoming(ir.Constant(intp, 0), before)
    running = [builder.phi(pieces.floats) for _ in range(rows)]
    x = pieces.load(builder, _at(builder, block, builder.mul(j, width)), pieces.floats)
    added = []
    for r, total in enumerate(running):
        total.add_incoming(begin[r], before)
        weight = builder.load(_at(builder, weights, builder.mul(ir.Constant(intp, r), apart), j))
        added.append(pieces.add_product(builder, pieces.spread(builder, weight, pieces.floats), x, total))
    following = builder.add(j, ir.Constant(intp, 1))
    end = builder.block
    j.add_incoming(following, end)
    for total, new in zip(running, added, strict=True):
        total.add_incoming(new, end)
    builder.cbranch(builder.icmp_signed("<", following, n_features), loop, after)
    builder.position_at_end(after)
    out = []
    for r in range(rows):
        total = builder.phi(pieces.floats)
        total.add_incoming(begin[r], before)
        total.add_incoming(added[r], end)
        out.append(total)
    return out


def _for_each_count(builder, rows, most, body):
    """``body(k)`` where ``rows`` is k, for k from 1 to ``most``: a separate loop for each number of rows."""
    end = builder.append_basic_block("end")
    switch = builder.switch(rows, end)
    for k in range(1, most + 1):
        case = builder.append_basic_block(f"rows{k}")
        switch.add_case(rows.type(k), case)
        builder.position_at_end(case)
        body(k)
        builder.branch(end)
    builder.position_at_end(end)


def _linear_tile(lanes):
    @intrinsic
    def tile(typing_context, block, d, width, weights, first, rows, n_features, scores):
        """Scores of a tile by some linear rankers.

        Args:
            typing_context: Numba's.
            block: float32 [f · width], a query's features, feature by feature.
            d: First document of the tile.
            width: Documents with padding.
            weights: float32 [rankers, size].
            first: First of the rankers.
            rows: How many, from 1 to ``ROWS[lanes]``.
            n_features: f.
            scores: float32 [rankers, width or more], filled.
        """
        from llvmlite import ir
        from numba.core import types

        def code(context, builder, signature, args):
            block, d, width, weights, first, rows, n_features, scores = args
            pieces = _pieces(lanes)
            data, _ = _array(context, builder, signature.args[0], block)
            models, (_, size) = _array(context, builder, signature.args[3], weights)
            out, (_, pitch) = _array(context, builder, signature.args[7], scores)
            data, models = _at(builder, data, d), _at(builder, models, builder.mul(first, size))
            out = _at(builder, out, builder.mul(first, pitch), d)

            def body(count):
                zeros = [pieces.zero] * count
                for r, total in enumerate(_sums(builder, pieces, count, data, width, models, size, n_features, zeros)):
                    pieces.store(builder, total, _at(builder, out, builder.mul(ir.Constant(d.type, r), pitch)))

            _for_each_count(builder, rows, ROWS[lanes], body)
            return context.get_dummy_value()

        n = types.intp
        return types.void(block, n, n, weights, n, n, n, scores), code

    return tile


def _hidden_tile(lanes):
    @intrinsic
    def tile(typing_context, block, d, width, weights, first, rows, n_features, hidden, scores):
        """Add the part of some hidden units of a two-layer ranker to the scores of a tile.

        Args:
            typing_context: Numba's.
            block: float32 [f · width], a query's features, feature by feature.
            d: First document of the tile.
            width: Documents with padding.
            weights: float32 [size]: weights into the units, biases, weights out of the units.
            first: First of the units.
            rows: How many, from 1 to ``ROWS[lanes]``.
            n_features: f.
            hidden: Hidden units of the ranker.
            scores: float32 [width or more], added to.
        """
        from llvmlite import ir
        from numba.core import types

        def code(context, builder, signature, args):
            block, d, width, weights, first, rows, n_features, hidden, scores = args
            pieces = _pieces(lanes)
            data, _ = _array(context, builder, signature.args[0], block)
            model, _ = _array(context, builder, signature.args[3], weights)
            out, _ = _array(context, builder, signature.args[8], scores)
            data, out = _at(builder, data, d), _at(builder, out, d)
            rest = _at(builder, model, builder.mul(hidden, n_features), first)
            into = _at(builder, model, builder.mul(first, n_features))

            def body(count):
                numbers = [ir.Constant(d.type, r) for r in range(count)]
                begin = [pieces.spread(builder, builder.load(_at(builder, rest, r)), pieces.floats) for r in numbers]
                sums = _sums(builder, pieces, count, data, width, into, n_features, n_features, begin)
                score = pieces.load(builder, out, pieces.floats)
                for r, total in zip(numbers, sums, strict=True):
                    weight = builder.load(_at(builder, rest, hidden, r))
                    off = builder.fcmp_ordered("<", total, pieces.zero)  # not a number stays what it is
                    active = builder.select(off, pieces.zero, total)
                    score = pieces.add_product(builder, pieces.spread(builder, weight, pieces.floats), active, score)
                pieces.store(builder, score, out)

            _for_each_count(builder, rows, ROWS[lanes], body)
            return context.get_dummy_value()

        n = types.intp
        return types.void(block, n, n, weights, n, n, n, n, scores), code

    return tile


linear_tile_16, linear_tile_8 = _linear_tile(16), _linear_tile(8)
hidden_tile_16, hidden_tile_8 = _hidden_tile(16), _hidden_tile(8)


#: Groups of documents whose best scores bound the best of all, and documents that are put in order at once.
_GROUPS = 16
#: Most documents that may be put in order; of many documents about 15 pass for the best ten, seldom more than 24.
ROOM = 32


def _keys(builder, pieces, scores, first, length):
    """Scores of a tile as integers in the same order: lowest where it is not a number, and beyond ``length``."""
    from llvmlite import ir

    scores = builder.fadd(scores, pieces.zero)  # −0 becomes 0
    bits = builder.bitcast(scores, pieces.ints)
    key = builder.xor(bits, builder.and_(builder.ashr(bits, pieces.all_of(31)), pieces.all_of(0x7FFFFFFF)))
    # −∞ and what is not a number share the last place; padding is behind it.
    lowest = pieces.all_of(-(2**31) + 0x7FFFFF)
    key = builder.select(builder.fcmp_unordered("uno", scores, scores), lowest, key)
    left = builder.trunc(builder.sub(length, ir.Constant(length.type, first)), ir.IntType(32))
    real = builder.icmp_signed("<", pieces.numbers, pieces.spread(builder, left, pieces.ints))
    return builder.select(real, key, pieces.all_of(-(2**31) + 1))  # less 1 it is still a number of 32 bits


def _bound(builder, pieces, data, length, width, wanted, kept):
    """A score that at least ``wanted`` documents have: of the best of 16 groups of documents, the last wanted.

    What is not a number counts for nothing. It is −∞ where fewer than ``wanted`` groups have a score above it.

    Args:
        builder: Of LLVM.
        pieces: For 8 documents.
        data: Pointer to the scores; what lies between ``length`` and ``width`` is set to −∞.
        length: How many documents there are.
        width: Documents with padding, a multiple of 8, at least 16.
        wanted: From 1 to 16.
        kept: Scratch for 16 floats.
    """
    from llvmlite import ir

    i32, intp = ir.IntType(32), length.type

    def number(value):
        return ir.Constant(intp, value)

    def better(best, place):
        new = pieces.load(builder, _at(builder, data, place), pieces.floats)
        return builder.select(builder.fcmp_ordered(">", new, best), new, best)

    infinity = float("inf")
    lowest, highest = (ir.Constant(pieces.floats, [ir.Constant(ir.FloatType(), x)] * 8) for x in (-infinity, infinity))
    last = builder.sub(width, number(8))
    end = pieces.load(builder, _at(builder, data, last), pieces.floats)
    left = pieces.spread(builder, builder.trunc(builder.sub(length, last), i32), pieces.ints)
    end = builder.select(builder.icmp_signed("<", pieces.numbers, left), end, lowest)
    pieces.store(builder, end, _at(builder, data, last))

    before, loop, after = builder.block, builder.append_basic_block("pairs"), builder.append_basic_block("paired")
    builder.branch(loop)
    builder.position_at_end(loop)
    d, best = builder.phi(intp), [builder.phi(pieces.floats) for _ in range(2)]
    more = [better(best[0], d), better(best[1], builder.add(d, number(8)))]
    following = builder.add(d, number(16))
    for phi, first, new in ((d, number(0), following), *((b, lowest, m) for b, m in zip(best, more, strict=True))):
        phi.add_incoming(first, before)
        phi.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<=", following, builder.sub(width, number(16))), loop, after)
    builder.position_at_end(after)
    # The last eight, where they are half of a pair. Elsewhere they are in a group already, and no document is in two.
    half = builder.icmp_signed("!=", builder.and_(width, number(8)), number(0))
    best = [builder.select(half, better(more[0], last), more[0]), more[1]]

    for t, values in enumerate(best):
        pieces.store(builder, values, _at(builder, kept, number(8 * t)))
    ahead = [pieces.no_ints, pieces.no_ints]
    for k in range(_GROUPS):
        other = pieces.spread(builder, builder.load(_at(builder, kept, number(k))), pieces.floats)
        above = [builder.sext(builder.fcmp_ordered(">", other, mine), pieces.ints) for mine in best]
        ahead = [builder.sub(count, yes) for count, yes in zip(ahead, above, strict=True)]
    wanted = pieces.spread(builder, builder.trunc(wanted, i32), pieces.ints)
    among = [
        builder.select(builder.icmp_signed("<", count, wanted), mine, highest)
        for count, mine in zip(ahead, best, strict=True)
    ]
    least = builder.select(builder.fcmp_ordered("<", *among), *among)
    for step in (4, 2, 1):
        turned = ir.Constant(pieces.ints, [i32((lane + step) % 8) for lane in range(8)])
        other = builder.shuffle_vector(least, least, turned)
        least = builder.select(builder.fcmp_ordered("<", other, least), other, least)
    return builder.extract_element(least, i32(0))


def _pick(builder, pieces, data, width, least, documents, picked):
    """Documents with a score of at least ``least`` and their scores, in order.

    Returns:
        How many there are; it stops where they are more than ``ROOM``.
    """
    from llvmlite import ir
    from numba.core import cgutils

    intp = width.type
    before, loop, after = builder.block, builder.append_basic_block("pick"), builder.append_basic_block("picked")
    builder.branch(loop)
    builder.position_at_end(loop)
    d, found = builder.phi(intp), builder.phi(intp)
    mine = pieces.load(builder, _at(builder, data, d), pieces.floats)
    enough = builder.fcmp_ordered(">=", mine, pieces.spread(builder, least, pieces.floats))
    first = pieces.spread(builder, builder.trunc(d, ir.IntType(32)), pieces.ints)
    for kind, short, values, out in (
        (pieces.floats, "f32", mine, picked),
        (pieces.ints, "i32", builder.add(first, pieces.numbers), documents),
    ):
        function = ir.FunctionType(kind, [kind, ir.VectorType(ir.IntType(1), 8), kind])
        compress = cgutils.get_or_insert_function(
            builder.module, function, f"llvm.experimental.vector.compress.v8{short}"
        )
        together = builder.call(compress, [values, enough, ir.Constant(kind, ir.Undefined)])
        pieces.store(builder, together, _at(builder, out, found))
    more = builder.add(found, builder.zext(builder.ctpop(builder.bitcast(enough, ir.IntType(8))), intp))
    following = builder.add(d, ir.Constant(intp, 8))
    for phi, new in ((d, following), (found, more)):
        phi.add_incoming(ir.Constant(intp, 0), before)
        phi.add_incoming(new, loop)
    fits = builder.icmp_signed("<=", more, ir.Constant(intp, ROOM))
    builder.cbranch(builder.and_(fits, builder.icmp_signed("<", following, width)), loop, after)
    builder.position_at_end(after)
    return more


def _place(builder, pieces, many, documents, picked, keys, found, shown, random_ties, top):
    """Put up to ``many`` documents in order by their ranks, each the number of documents that are ahead of it.

    Returns:
        Whether the order of equal scores matters and is random.
    """
    from llvmlite import ir

    i1, intp, tiles = ir.IntType(1), found.type, range(many // 8)

    def number(value):
        return ir.Constant(intp, value)

    mine = []
    for t in tiles:
        tile = pieces.load(builder, _at(builder, picked, number(8 * t)), pieces.floats)
        mine.append(_keys(builder, pieces, tile, 8 * t, found))
        pieces.store(builder, mine[t], _at(builder, keys, number(8 * t)))

    def ahead(thresholds):
        """Numbers of keys above each threshold; ``thresholds(t, k)`` is that of tile t for key k."""
        counts = [pieces.no_ints for _ in tiles]
        for k in range(many):
            other = pieces.spread(builder, builder.load(_at(builder, keys, number(k))), pieces.ints)
            for t in tiles:
                above = builder.icmp_signed(">", other, thresholds(t, k))
                counts[t] = builder.sub(counts[t], builder.sext(above, pieces.ints))
        return counts

    def before(t, k):
        """An equal key before a document counts as a larger one: it is larger than the document's less 1."""
        later = ir.Constant(pieces.ints, [ir.IntType(32)(int(8 * t + lane > k)) for lane in range(8)])
        return builder.sub(mine[t], later)

    ranks = ahead(before)
    start, look = builder.block, builder.append_basic_block("equal")
    known = builder.append_basic_block("known")
    builder.cbranch(random_ties, look, known)
    builder.position_at_end(look)
    strict, equal = ahead(lambda t, k: mine[t]), ir.Constant(i1, 0)
    limit = pieces.spread(builder, builder.trunc(shown, ir.IntType(32)), pieces.ints)
    for t in tiles:
        among = builder.icmp_signed("<", strict[t], limit)
        shared = builder.and_(among, builder.icmp_signed("!=", strict[t], ranks[t]))
        some = builder.icmp_unsigned("!=", builder.bitcast(shared, ir.IntType(8)), ir.IntType(8)(0))
        equal = builder.or_(equal, some)
    looked = builder.block
    builder.branch(known)
    builder.position_at_end(known)
    matters = builder.phi(i1)
    matters.add_incoming(ir.Constant(i1, 0), start)
    matters.add_incoming(equal, looked)

    for t in tiles:
        pieces.store(builder, ranks[t], _at(builder, keys, number(8 * t)))
    for k in range(many):
        rank = builder.zext(builder.load(_at(builder, keys, number(k))), intp)
        rank = builder.select(builder.icmp_unsigned("<", rank, shown), rank, shown)  # the last place takes the rest
        builder.store(builder.load(_at(builder, documents, number(k))), _at(builder, top, rank))
    return matters


@intrinsic
def best_tiles(typing_context, scores, row, length, width, random_ties, top):
    """The documents at the first ranks, by vector instructions, without memory but for a few numbers on the stack.

    Of more than 16 documents, those are picked that have at least a score that enough documents have. A document's rank
    among them is the number of those ahead of it. A document with a score that is not a number, or −∞, is never ahead.

    Args:
        typing_context: Numba's.
        scores: float32 [rankers, width or more]; what lies between ``length`` and ``width`` may be overwritten.
        row: Whose scores.
        length: Documents.
        width: Documents with padding, a multiple of 8.
        random_ties: Whether the order of equal scores is random, or that of the data.
        top: int32 [depth + 1], filled; the last place is scratch.

    Returns:
        How many are shown. −1 where all documents have to be looked at one after another: equal scores whose order is
        random decide, too many documents pass, too few have a score that is a number, or there are more than 16 ranks.
    """
    from llvmlite import ir
    from numba.core import cgutils, types

    def code(context, builder, signature, args):
        scores, row, length, width, random_ties, top = args
        pieces, intp, f32, i32 = _pieces(8), args[2].type, ir.FloatType(), ir.IntType(32)
        data, (_, pitch) = _array(context, builder, signature.args[0], scores)
        data = _at(builder, data, builder.mul(row, pitch))
        places, (room,) = _array(context, builder, signature.args[5], top)

        def number(value):
            return ir.Constant(intp, value)

        def scratch(kind, size):
            whole = cgutils.alloca_once(builder, ir.ArrayType(kind, size))
            return builder.bitcast(whole, kind.as_pointer())

        kept, picked = scratch(f32, _GROUPS), scratch(f32, ROOM + 8)
        documents, keys = scratch(i32, ROOM + 8), scratch(i32, ROOM)
        answer = cgutils.alloca_once_value(builder, number(-1))
        depth = builder.sub(room, number(1))
        shown = builder.select(builder.icmp_signed("<", length, depth), length, depth)
        random_ties = context.cast(builder, random_ties, signature.args[4], types.boolean)
        names = ("few", "many", "enough", "sixteen", "more", "all", "end")
        few, many, enough, sixteen, more, all_of_them, end = (builder.append_basic_block(name) for name in names)
        builder.cbranch(builder.icmp_signed("<=", width, number(16)), few, many)

        builder.position_at_end(few)  # all, the first eight twice where there are no others
        for t, first in enumerate((number(0), builder.sub(width, number(8)))):
            tile = pieces.load(builder, _at(builder, data, first), pieces.floats)
            pieces.store(builder, tile, _at(builder, picked, number(8 * t)))
            index = builder.add(pieces.numbers, pieces.all_of(8 * t))
            pieces.store(builder, index, _at(builder, documents, number(8 * t)))
        builder.cbranch(builder.icmp_signed("<=", depth, number(16)), sixteen, end)

        builder.position_at_end(many)
        least = _bound(builder, pieces, data, length, width, depth, kept)
        deep = builder.icmp_signed(">", depth, number(16))
        none = builder.or_(deep, builder.fcmp_ordered("==", least, ir.Constant(f32, -float("inf"))))
        builder.cbranch(none, end, enough)
        builder.position_at_end(enough)
        found = _pick(builder, pieces, data, width, least, documents, picked)
        enough = builder.block
        builder.cbranch(builder.icmp_signed("<=", found, number(16)), sixteen, more)
        builder.position_at_end(more)
        builder.cbranch(builder.icmp_signed("<=", found, number(ROOM)), all_of_them, end)

        for block, size in ((sixteen, 16), (all_of_them, ROOM)):
            builder.position_at_end(block)
            here = found
            if size == 16:
                here = builder.phi(intp)
                here.add_incoming(length, few)
                here.add_incoming(found, enough)
            known = (documents, picked, keys, here, shown, random_ties, places)
            matters = _place(builder, pieces, size, *known)
            builder.store(builder.select(matters, number(-1), shown), answer)
            builder.branch(end)
        builder.position_at_end(end)
        return builder.load(answer)

    n = types.intp
    return n(scores, n, n, n, types.boolean, top), code
