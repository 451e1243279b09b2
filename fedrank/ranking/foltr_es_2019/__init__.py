"""What only the publication of FOLtR-ES has (Kharitonov, WSDM 2019): its code's random stream and its table of ε.

:mod:`.random_stream` draws as the published code does, fault included; ``as_published`` switches it on.
:mod:`.privacy_table` computes Table 2 anew and keeps the numbers that the paper prints.
"""
