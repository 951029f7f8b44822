# SPDX-License-Identifier: Apache-2.0
# A base for the other images where no public one can be pulled: the context holds base.tar, made
# with mmdebstrap.
FROM scratch
ADD base.tar /
CMD ["python3"]
