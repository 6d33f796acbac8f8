# SPDX-License-Identifier: Apache-2.0
"""The training program for GPUs: a NeMo 2 pretraining recipe, configured by a frozen
recipe.json.
"""
