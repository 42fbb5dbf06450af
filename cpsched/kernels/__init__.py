"""The compiled floor: the loops over queue, nodes and running jobs.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which something happens to be stored: the same instant gives the same decision, whether
its state was carried along or built anew.
"""
