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
#: The key of places beyond the documents of a query; less 1 it is still a number of 32 bits.
PADDING = -(2**31) + 1


def _pieces(lanes):
    """Types of LLVM for a tile of so many documents, and builders of what its instructions need."""
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
    """``body(k)`` where ``rows`` is k, for k from 1 to ``most``: a loop of its own for each number of rows."""
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
        """What some hidden units of a two-layer ranker add to the scores of a tile.

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


@intrinsic
def key_tile(typing_context, scores, row, d, length, keys):
    """Scores of 8 documents as integers in the same order: lowest where it is not a number, and beyond ``length``.

    Args:
        typing_context: Numba's.
        scores: float32 [rankers, width or more].
        row: Whose scores.
        d: First document of the tile.
        length: How many documents there are.
        keys: int32 [width], filled.
    """
    from llvmlite import ir
    from numba.core import types

    def code(context, builder, signature, args):
        scores, row, d, length, keys = args
        pieces = _pieces(8)
        data, (_, pitch) = _array(context, builder, signature.args[0], scores)
        value = pieces.load(builder, _at(builder, data, builder.mul(row, pitch), d), pieces.floats)
        value = builder.fadd(value, pieces.zero)  # −0 becomes 0
        bits = builder.bitcast(value, pieces.ints)
        sign = builder.ashr(bits, pieces.all_of(31))
        key = builder.xor(bits, builder.and_(sign, pieces.all_of(0x7FFFFFFF)))
        # −∞ and what is not a number share the last place; padding is behind it.
        lowest = pieces.all_of(-(2**31) + 0x7FFFFF)
        key = builder.select(builder.fcmp_unordered("uno", value, value), lowest, key)
        left = builder.trunc(builder.sub(length, d), ir.IntType(32))
        real = builder.icmp_signed("<", pieces.numbers, pieces.spread(builder, left, pieces.ints))
        key = builder.select(real, key, pieces.all_of(PADDING))
        pieces.store(builder, key, _at(builder, _array(context, builder, signature.args[4], keys)[0], d))
        return context.get_dummy_value()

    n = types.intp
    return types.void(scores, n, n, n, keys), code


def _rank_tiles(tiles, stable):
    @intrinsic
    def rank(typing_context, keys, d, width, ranks):
        """How many documents are ahead of each of some tiles: with a larger key and, if stable, an equal one before it.

        Args:
            typing_context: Numba's.
            keys: int32 [width]: see :func:`key_tile`.
            d: First document of the first tile, of 8 documents each.
            width: Documents with padding.
            ranks: int32 [width], filled; padding is behind all documents.
        """
        from llvmlite import ir
        from numba.core import types

        def code(context, builder, signature, args):
            keys, d, width, ranks = args
            pieces, i32 = _pieces(8), ir.IntType(32)  # 8: longer comparisons take two instructions for one
            data, _ = _array(context, builder, signature.args[0], keys)
            out, _ = _array(context, builder, signature.args[3], ranks)
            places = [builder.add(d, ir.Constant(d.type, 8 * t)) for t in range(tiles)]
            mine = [pieces.load(builder, _at(builder, data, place), pieces.ints) for place in places]

            def counted(totals, place, thresholds):
                other = pieces.spread(builder, builder.load(_at(builder, data, place)), pieces.ints)
                ahead = [builder.sext(builder.icmp_signed(">", other, t), pieces.ints) for t in thresholds]
                return [builder.sub(total, yes) for total, yes in zip(totals, ahead, strict=True)]

            def loop(low, high, thresholds, totals):
                """Over whole eights of documents: loops that end early are guessed right by the processor."""
                before, body = builder.block, builder.append_basic_block("others")
                after = builder.append_basic_block("counted")
                builder.cbranch(builder.icmp_signed("<", low, high), body, after)
                builder.position_at_end(body)
                e, running = builder.phi(d.type), [builder.phi(pieces.ints) for _ in totals]
                more = running
                for k in range(8):
                    more = counted(more, builder.add(e, ir.Constant(d.type, k)), thresholds)
                following = builder.add(e, ir.Constant(d.type, 8))
                e.add_incoming(low, before)
                e.add_incoming(following, body)
                builder.cbranch(builder.icmp_signed("<", following, high), body, after)
                builder.position_at_end(after)
                out = [builder.phi(pieces.ints) for _ in totals]
                for total, changing, new, last in zip(totals, running, more, out, strict=True):
                    changing.add_incoming(total, before)
                    changing.add_incoming(new, body)
                    last.add_incoming(total, before)
                    last.add_incoming(new, body)
                return out

            totals, first = [pieces.no_ints] * tiles, ir.Constant(d.type, 0)
            if stable:
                # An equal key before a document counts as a larger one: it is larger than the document's less 1.
                totals = loop(first, d, [builder.sub(m, pieces.all_of(1)) for m in mine], totals)
                for k in range(8 * tiles):
                    thresholds = [
                        builder.sub(m, ir.Constant(pieces.ints, [i32(int(8 * t + lane > k)) for lane in range(8)]))
                        for t, m in enumerate(mine)
                    ]
                    totals = counted(totals, builder.add(d, ir.Constant(d.type, k)), thresholds)
                first = builder.add(d, ir.Constant(d.type, 8 * tiles))
            totals = loop(first, width, mine, totals)
            for total, place in zip(totals, places, strict=True):
                pieces.store(builder, total, _at(builder, out, place))
            return context.get_dummy_value()

        n = types.intp
        return types.void(keys, n, n, ranks), code

    return rank


rank_two_tiles, rank_tile = _rank_tiles(2, stable=True), _rank_tiles(1, stable=True)
count_two_tiles, count_tile = _rank_tiles(2, stable=False), _rank_tiles(1, stable=False)


@intrinsic
def above_tile(typing_context, keys, d, least):
    """Which of 8 documents have a key above ``least``: an integer whose bit i is set for document d + i.

    Args:
        typing_context: Numba's.
        keys: int32 [width].
        d: First document of the tile.
        least: int32.
    """
    from llvmlite import ir
    from numba.core import types

    def code(context, builder, signature, args):
        keys, d, least = args
        pieces = _pieces(8)
        data, _ = _array(context, builder, signature.args[0], keys)
        mine = pieces.load(builder, _at(builder, data, d), pieces.ints)
        above = builder.icmp_signed(">", mine, pieces.spread(builder, least, pieces.ints))
        return builder.zext(builder.bitcast(above, ir.IntType(8)), ir.IntType(64))

    return types.int64(keys, types.intp, types.int32), code


@intrinsic
def fill_places(typing_context, ranks, width, shown, places):
    """The documents by rank: ``places[min(rank, shown)]`` of every document, so that the last place takes the rest.

    Args:
        typing_context: Numba's.
        ranks: int32 [width], each document's rank, at least 0.
        width: Documents with padding, at least 8.
        shown: How many ranks are wanted.
        places: int32 [shown + 1 or more], filled.
    """
    from llvmlite import ir
    from numba.core import types

    def code(context, builder, signature, args):
        ranks, width, shown, places = args
        data, _ = _array(context, builder, signature.args[0], ranks)
        out, _ = _array(context, builder, signature.args[3], places)
        before, loop, after = builder.block, builder.append_basic_block("place"), builder.append_basic_block("placed")
        builder.branch(loop)
        builder.position_at_end(loop)
        first = builder.phi(width.type)
        for k in range(8):
            d = builder.add(first, ir.Constant(width.type, k))
            rank = builder.zext(builder.load(_at(builder, data, d)), width.type)
            rank = builder.select(builder.icmp_unsigned("<", rank, shown), rank, shown)
            builder.store(builder.trunc(d, ir.IntType(32)), _at(builder, out, rank))
        following = builder.add(first, ir.Constant(width.type, 8))
        first.add_incoming(ir.Constant(width.type, 0), before)
        first.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, width), loop, after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    n = types.intp
    return types.void(ranks, n, n, places), code
