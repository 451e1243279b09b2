"""Secure summation: the server learns the sum of the parties' vectors and nothing else about them.

After Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning* (CCS 2017), with the
neighbour graph of Bell et al., *Secure single-server aggregation with (poly)logarithmic overhead* (CCS 2020). It is
what noise in shares needs: a share protects nothing by itself (:mod:`fedrank.privacy.noise.discrete`), their sum does,
and only the sum is to be seen. Vectors are integers modulo 2³², to be read as −2³¹ … 2³¹ − 1, so that a sum must stay
below 2³¹ in absolute value; :mod:`fedrank.privacy.quantise` makes them and checks that.

One sum::

    keys        a party makes two key pairs, one to seal shares with, one to mask with
    shares      it splits its mask key and the seed of its self mask among itself and its neighbours, t of which can
                put them together again, and seals each neighbour's shares for it
    vectors     it sends  x + (self mask) ± (one mask for each neighbour, known to the two of them)
    unmasking   of each neighbour a survivor sends one share: of the seed if its vector came, of the mask key if not

Masks of neighbours cancel in the sum; those of parties that dropped out are made again from their mask keys; self masks
are made again from their seeds and taken off. The self mask is why a late vector stays hidden though its pairwise masks
are known by then, and it is why no party may ever get shares of both secrets of one party: a party answers one request,
which has one mark for each neighbour. Since a threshold is more than half of the holders, a server that tells one half
that a party dropped out, and the other half that it survived, collects too few shares of one or the other.

**What it protects against.** A server, and fewer than ``threshold`` of any party's holders together with it, that keep
to the protocol and look at everything they see: they learn the sum over the survivors, who took part, and who dropped
out. False, changed or repeated shares and messages of other sessions are refused and stop the sum.

**What it does not protect against.**

- A server that hands out keys that it made itself. There is no directory of the parties' keys here, so that a server
  can pose as a party's neighbours, all of them, and unmask it. The same holds for a crowd of invented parties.
- A server that gives out different lists of survivors: it can choose over which parties, at least ``threshold`` of a
  neighbourhood, the sum runs. There is no round in which parties compare what they were told.
- A server that chooses who is whose neighbour. With few neighbours the graph must be drawn by chance, and dense enough
  for the survivors who keep to the protocol to stay connected; Bell et al. compute how dense. A party sees its own
  neighbourhood only: how many stayed in the whole cohort, and so added their noise, it has to believe.
- A party that sends a wrong vector, or stops every sum by sending false shares.
- What the sum itself says. The sum of two vectors tells each of the two the other's; hide that with noise.
- Whoever measures how long a device computes: vectors and masks are added by NumPy, secrets split in plain Python.
"""
