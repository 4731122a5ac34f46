"""The passes and their order, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bolt_build.graph import invariants
from bolt_build.graph.ir import Graph
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.passes.align.join_slices import JOIN_SLICES
from bolt_build.planner.passes.align.order_slices import ORDER_SLICES
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS, PAD_VOLUMES
from bolt_build.planner.passes.align.pad_filters import PAD_FILTERS
from bolt_build.planner.passes.align.pad_heads import PAD_HEADS
from bolt_build.planner.passes.align.pad_slices import PAD_SLICES
from bolt_build.planner.passes.align.split_batches import SPLIT_BATCHES
from bolt_build.planner.passes.align.split_groups import SPLIT_GROUPS
from bolt_build.planner.passes.align.trim_windows import TRIM_WINDOWS
from bolt_build.planner.passes.base import Pass, PassResult
from bolt_build.planner.passes.fold.affine import FOLD_AFFINE
from bolt_build.planner.passes.fold.batch_norm import FOLD_BATCH_NORM
from bolt_build.planner.passes.fold.branches import MERGE_BRANCHES
from bolt_build.planner.passes.fold.crops import FOLD_CROPS
from bolt_build.planner.passes.fold.early_norms import NORM_EARLY
from bolt_build.planner.passes.fold.early_parts import NORM_PARTS
from bolt_build.planner.passes.fold.filter_scales import SCALE_IMAGES
from bolt_build.planner.passes.fold.folded_gates import FOLD_GATED
from bolt_build.planner.passes.fold.folded_parts import FOLD_PARTS
from bolt_build.planner.passes.fold.forward_affine import FOLD_FORWARD
from bolt_build.planner.passes.fold.later_moves import MOVE_LATER
from bolt_build.planner.passes.fold.pads import FOLD_PADS
from bolt_build.planner.passes.fold.phases import JOIN_PHASES
from bolt_build.planner.passes.fold.row_residuals import ADD_TO_IMAGES
from bolt_build.planner.passes.fold.scaled_norms import SCALE_NORMS
from bolt_build.planner.passes.fold.shifted_queries import SHIFT_QUERIES
from bolt_build.planner.passes.fuse.channel_epilogues import FUSE_CHANNELS
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.passes.fuse.window_epilogues import FUSE_WINDOWS
from bolt_build.planner.passes.images.early_means import EARLY_GATES, EARLY_MEANS
from bolt_build.planner.passes.images.fold_columns import FOLD_BEYOND_BANDS, FOLD_COLUMNS
from bolt_build.planner.passes.images.fold_lines import FOLD_LINES
from bolt_build.planner.passes.images.fold_results import FOLD_RESULTS
from bolt_build.planner.passes.images.gated_branches import GATE_BRANCHES
from bolt_build.planner.passes.images.gated_sums import GATE_SUMS
from bolt_build.planner.passes.images.gathered_pieces import GATHER_PIECES
from bolt_build.planner.passes.images.gathered_windows import GATHER_WINDOWS
from bolt_build.planner.passes.images.image_moves import MOVE_IMAGES
from bolt_build.planner.passes.images.multiply_shuffles import MULTIPLY_SHUFFLES
from bolt_build.planner.passes.images.pool_volumes import POOL_VOLUMES
from bolt_build.planner.passes.images.rearrangements import MERGE_REARRANGEMENTS
from bolt_build.planner.passes.images.resample import RESAMPLE_IMAGES
from bolt_build.planner.passes.images.spread_parts import SPREAD_PARTS
from bolt_build.planner.passes.images.stacked_sums import ADD_STACKED
from bolt_build.planner.passes.images.staged_parts import STAGE_PARTS
from bolt_build.planner.passes.images.summed_selections import SUM_SELECTIONS
from bolt_build.planner.passes.images.turned_images import TURN_IMAGES
from bolt_build.planner.passes.images.volumes import FLATTEN_VOLUMES
from bolt_build.planner.passes.images.weighed_windows import WEIGH_WINDOWS
from bolt_build.planner.passes.images.whole_windows import REDUCE_WHOLE_WINDOWS
from bolt_build.planner.passes.quantised.fake_quantise import FAKE_QUANTISE
from bolt_build.planner.passes.quantised.map_integers import MAP_INTEGERS
from bolt_build.planner.passes.quantised.move_integers import MOVE_INTEGERS
from bolt_build.planner.passes.quantised.multiply_integers import MULTIPLY_INTEGERS, multiplies_integers
from bolt_build.planner.passes.quantised.round_products import ROUND_PRODUCTS
from bolt_build.planner.passes.quantised.scaled_sums import SCALE_SUMS
from bolt_build.planner.passes.recognise.activations import RECOGNISE_ACTIVATIONS
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.recognise.batch_parts import BATCH_PARTS
from bolt_build.planner.passes.recognise.channel_attention import ATTEND_CHANNELS
from bolt_build.planner.passes.recognise.group_norms import RECOGNISE_GROUP_NORMS
from bolt_build.planner.passes.recognise.log_sums import RECOGNISE_LOG_SUMS
from bolt_build.planner.passes.recognise.norms import RECOGNISE_NORMS
from bolt_build.planner.passes.recognise.response_norms import RECOGNISE_RESPONSE_NORMS
from bolt_build.planner.passes.recognise.rotary import RECOGNISE_ROTARY
from bolt_build.planner.passes.recognise.share_differences import PART_SHARES
from bolt_build.planner.passes.recognise.sinkhorn import RECOGNISE_SINKHORN
from bolt_build.planner.passes.recognise.softmaxes import RECOGNISE_SOFTMAXES
from bolt_build.planner.passes.recognise.squares import RECOGNISE_SQUARES
from bolt_build.planner.passes.recognise.state_scans import RECOGNISE_SCANS
from bolt_build.planner.passes.recognise.substitutions import RECOGNISE_SUBSTITUTIONS
from bolt_build.planner.passes.recognise.summed_biases import SUM_BIASES
from bolt_build.planner.passes.rows.carried_choices import CARRY_CHOICES
from bolt_build.planner.passes.rows.carried_moves import CARRY_MOVES
from bolt_build.planner.passes.rows.chosen_matrices import CHOSEN_MATRICES
from bolt_build.planner.passes.rows.distances import MASKS_BY_DISTANCE
from bolt_build.planner.passes.rows.early_rows import SELECT_EARLY
from bolt_build.planner.passes.rows.few_rows import SHARE_FEW_ROWS
from bolt_build.planner.passes.rows.gate_columns import GATE_COLUMNS
from bolt_build.planner.passes.rows.gather_rows import GATHER_ROWS
from bolt_build.planner.passes.rows.latent_keys import JOIN_LATENT_KEYS
from bolt_build.planner.passes.rows.later_heads import MOVE_HEADS_LATER
from bolt_build.planner.passes.rows.mask_blocks import MASK_BLOCKS
from bolt_build.planner.passes.rows.masks_apart import MASKS_APART
from bolt_build.planner.passes.rows.mix_heads import MIX_HEADS
from bolt_build.planner.passes.rows.multiply_pairs import MULTIPLY_PAIRS
from bolt_build.planner.passes.rows.multiply_windows import MULTIPLY_WINDOWS
from bolt_build.planner.passes.rows.narrow_places import NARROW_PLACES
from bolt_build.planner.passes.rows.neighbour_columns import PART_NEIGHBOURS
from bolt_build.planner.passes.rows.order_heads import ORDER_HEADS
from bolt_build.planner.passes.rows.outer_products import MULTIPLY_COLUMNS
from bolt_build.planner.passes.rows.pair_sums import ADD_PAIRS
from bolt_build.planner.passes.rows.patches import MULTIPLY_PATCHES
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.passes.rows.projections import MERGE_PROJECTIONS
from bolt_build.planner.passes.rows.shared_keys import SHARE_KEYS
from bolt_build.planner.passes.rows.shared_projections import SHARE_PROJECTIONS
from bolt_build.planner.passes.rows.single_rows import SINGLE_ROWS
from bolt_build.planner.passes.rows.split_depths import SPLIT_DEPTHS
from bolt_build.planner.passes.rows.spread_columns import SPREAD_COLUMNS
from bolt_build.planner.passes.rows.turned_rows import TURN_ROWS
from bolt_build.planner.passes.rows.unsorted_rows import UNSORTED_ROWS
from bolt_build.planner.passes.rows.wide_heads import MULTIPLY_WIDE_HEADS
from bolt_build.planner.passes.tidy.asked_booleans import ASK_BOOLEANS
from bolt_build.planner.passes.tidy.constants import FOLD_CONSTANTS
from bolt_build.planner.passes.tidy.copies import REMOVE_COPIES
from bolt_build.planner.passes.tidy.dead import REMOVE_DEAD
from bolt_build.planner.passes.tidy.duplicates import MERGE_DUPLICATES
from bolt_build.planner.passes.tidy.expands import BROADCAST
from bolt_build.planner.passes.tidy.hardmaxes import COMPARE_HARDMAXES
from bolt_build.planner.passes.tidy.interleaved_scatters import INTERLEAVE_SCATTERS
from bolt_build.planner.passes.tidy.joined_gathers import JOIN_GATHERS
from bolt_build.planner.passes.tidy.known_integers import KNOWN_INTEGERS
from bolt_build.planner.passes.tidy.late_expands import EXPAND_LATE
from bolt_build.planner.passes.tidy.moved_parts import MOVE_PARTS
from bolt_build.planner.passes.tidy.moves import MERGE_MOVES
from bolt_build.planner.passes.tidy.ordered_gathers import RESHAPE_GATHERS
from bolt_build.planner.passes.tidy.repeated_indices import REPEATED_INDICES
from bolt_build.planner.passes.tidy.slice_gathers import SLICE_GATHERS
from bolt_build.planner.passes.tidy.slice_scatters import SLICE_SCATTERS
from bolt_build.planner.passes.tidy.slice_tuples import SLICE_TUPLES
from bolt_build.planner.passes.tidy.slices import MERGE_SLICES
from bolt_build.planner.passes.tidy.turned_parts import TURN_PARTS
from bolt_build.plugins import Found, Plugged, guarded_call, is_a, plugged, refused
from bolt_build.schema.recipe import Policy
from bolt_build.targets import Target
from bolt_build.wording import suggest

PIPELINE: tuple[Pass, ...] = (
    REMOVE_DEAD,
    FOLD_CONSTANTS,
    REMOVE_COPIES,
    KNOWN_INTEGERS,  # functions of integers are one node behind the other
    RECOGNISE_SUBSTITUTIONS,  # scatters are slices behind it
    RECOGNISE_SINKHORN,
    RESHAPE_GATHERS,
    INTERLEAVE_SCATTERS,
    SLICE_SCATTERS,
    SLICE_TUPLES,
    MOVE_PARTS,
    MERGE_MOVES,
    JOIN_GATHERS,
    MERGE_SLICES,
    TURN_PARTS,  # what assignments leave is one concatenation
    REMOVE_COPIES,  # reshapes and transposes that undid each other, slices that take everything
    MERGE_DUPLICATES,
    RECOGNISE_SCANS,  # places of steps are one slice or gather each, and steps end in one concatenation
    CHOSEN_MATRICES,  # moves of rows are one reshape, and nothing is folded into matrices yet
    UNSORTED_ROWS,  # experts are products with chosen matrices now
    NARROW_PLACES,  # gathers that take elements at places are no slices yet
    REPEATED_INDICES,  # elements at places stay with their TopK
    ASK_BOOLEANS,
    COMPARE_HARDMAXES,
    GATHER_WINDOWS,  # cuts are one slice each
    GATHER_PIECES,  # likewise
    SUM_SELECTIONS,  # likewise, they are one gather each
    SCALE_IMAGES,  # no pass has changed how filters are scaled
    EXPAND_LATE,
    BROADCAST,
    SCALE_SUMS,
    replace(FAKE_QUANTISE, pays_on=lambda target, precision: not multiplies_integers(target, precision)),
    MOVE_INTEGERS,  # where no pair becomes one step of real numbers
    FOLD_PADS,
    FOLD_CROPS,  # pads are in convolutions now
    REDUCE_WHOLE_WINDOWS,  # pads are in poolings now
    RECOGNISE_ACTIVATIONS,  # before their numbers are folded into weights
    RECOGNISE_NORMS,  # likewise
    RECOGNISE_GROUP_NORMS,
    RECOGNISE_RESPONSE_NORMS,  # pads are part of poolings
    RECOGNISE_ROTARY,
    PART_NEIGHBOURS,  # what is turned as neighbours stays so
    RECOGNISE_ROTARY,  # halves of what it parted
    RECOGNISE_LOG_SUMS,
    RECOGNISE_SOFTMAXES,
    PART_SHARES,  # softmaxes are recognised
    BATCH_PARTS,  # attention sees one batch
    SUM_BIASES,  # biases by rows and columns are masks then
    RECOGNISE_ATTENTION,  # before scales are folded into the products in front of it
    MASKS_APART,  # before small sums of them are folded
    FOLD_CONSTANTS,  # its masks
    MASKS_BY_DISTANCE,  # they are constants now
    MERGE_MOVES,  # what moves its rows, with what is around it
    REMOVE_COPIES,
    JOIN_LATENT_KEYS,  # their moves are what attention asked for
    TURN_IMAGES,  # activations and normalisations are recognised by their last axis
    FOLD_PADS,  # in front of the transposes that are gone
    NORM_EARLY,  # to where it is folded
    NORM_PARTS,  # likewise
    FOLD_BATCH_NORM,
    STAGE_PARTS,  # BatchNorms that no convolution took are arithmetic now
    FOLD_AFFINE,
    MERGE_BRANCHES,  # their BatchNorms are in their weights now
    ADD_STACKED,
    GATE_SUMS,  # BatchNorms are in weights now
    MOVE_LATER,  # biases are part of products now
    FOLD_AFFINE,  # what stood behind the sum of branches, and behind such moves
    MERGE_BRANCHES,  # a block that scales what it adds to its input
    FOLD_FORWARD,  # what no product in front took
    MERGE_DUPLICATES,
    REMOVE_DEAD,  # nothing unread may count as a reader
    EARLY_MEANS,  # BatchNorms and biases are in their weights now
    EARLY_GATES,  # likewise
    FOLD_GATED,  # a product that its mean reads as well is not scaled
    JOIN_PHASES,  # BatchNorms and scales are in weights now
    SPREAD_PARTS,  # likewise
    SPREAD_COLUMNS,
    MULTIPLY_COLUMNS,  # of parts that are one column
    GATE_BRANCHES,  # sums over stacks are sums of branches now
    MULTIPLY_PATCHES,  # likewise
    MOVE_HEADS_LATER,  # attention has taken the moves that it can
    CARRY_CHOICES,  # likewise
    CARRY_MOVES,  # biases between them are part of products now
    TURN_ROWS,  # moves that undo each other are gone
    MERGE_MOVES,
    REMOVE_COPIES,
    SCALE_NORMS,  # attention has taken what scales heads
    FOLD_PARTS,  # attention has taken the scales that it can
    ORDER_HEADS,  # what moves heads is as short as it will be
    SELECT_EARLY,  # transposes are out of its way
    ATTEND_CHANNELS,  # before its queries and keys are columns of their own
    SHIFT_QUERIES,  # rows are in the order that they stay in
    MERGE_PROJECTIONS,  # their biases and scales are in their weights now
    SHARE_PROJECTIONS,  # those that are no packed rows
    SHARE_FEW_ROWS,  # those that attention does not read itself
    GATE_COLUMNS,  # biases are in products, and no gather is a slice's yet
    SLICE_GATHERS,  # attention and early rows look for gathers
    GATHER_ROWS,  # attention reads views where it can
    ADD_PAIRS,  # attention has taken scores out of sums
    MASK_BLOCKS,  # no pass looks for what attention reads any more
    SHARE_KEYS,  # no pass looks for heads of queries any more
    SINGLE_ROWS,  # heads that share keys are queries now
    MULTIPLY_WIDE_HEADS,  # queries, keys and values are packed where they can be
    MIX_HEADS,  # no attention has taken them
    WEIGH_WINDOWS,  # unfolded images are one gather each
    MULTIPLY_WINDOWS,  # weights have taken what they can
    PLACE_PRODUCTS,  # attention has taken those that it can
    SHARE_PROJECTIONS,  # those that such products read too
    MULTIPLY_PAIRS,  # factors are read where they lie
    SPLIT_DEPTHS,  # factors are read where they lie
    MERGE_REARRANGEMENTS,  # attention and its rows are out of its way
    MOVE_IMAGES,  # those between images are one movement already
    MULTIPLY_INTEGERS,  # biases are part of products, and images lie as they will
    RESAMPLE_IMAGES,  # no gather is looked for any more
    RECOGNISE_SQUARES,  # no formula is looked for any more
    ADD_TO_IMAGES,  # sums of rows were looked for in front of it
    FUSE_EPILOGUES,
    ROUND_PRODUCTS,  # what follows products is in their epilogues
    MAP_INTEGERS,  # likewise
    FAKE_QUANTISE,  # what no product of integers took
    TRIM_WINDOWS,  # branches are merged, whose windows are of one size
    FOLD_LINES,  # before long windows are cut in runs of taps, and what follows is in epilogues
    PAD_VOLUMES,  # before they are flattened
    FLATTEN_VOLUMES,  # with what follows each convolution
    POOL_VOLUMES,
    FOLD_COLUMNS,  # volumes are images now
    FOLD_BEYOND_BANDS,
    FOLD_RESULTS,  # what follows is in epilogues
    TRIM_WINDOWS,  # blocks of columns that an image is too narrow for
    SPLIT_GROUPS,  # likewise
    MULTIPLY_SHUFFLES,  # activations are in their epilogues now
    REMOVE_COPIES,  # slices that take everything
    PAD_HEADS,  # no pass looks for heads behind it
    PAD_SLICES,  # sums and activations between products are in their epilogues now
    ORDER_SLICES,  # what is not padded part by part
    PAD_CHANNELS,  # likewise
    JOIN_SLICES,  # padded channels count
    PAD_FILTERS,  # of what no product reads
    SPLIT_BATCHES,  # nothing becomes larger behind it
    FUSE_CHANNELS,  # filters stay in their order behind it
    FUSE_WINDOWS,  # channels are padded
)


def passes() -> tuple[Pass, ...]:
    """The built-in passes, and those of other packages where they ask to be: those that ask for one place by name.

    Raises BoltError where a package's pass cannot be used.
    """
    added = [_guarded(each) for each in plugged_passes().checked()]
    ordered: list[Pass] = []
    for built_in in PIPELINE:
        ordered += [plugged for plugged in added if plugged.before == built_in.name]
        added = [plugged for plugged in added if plugged.before != built_in.name]
        ordered.append(built_in)
    return tuple(ordered)


def unknown_passes(names: Sequence[str]) -> list[tuple[str, str]]:
    """Those of `names` that no pass has, each with what could have been meant, or how passes are found."""
    known = list(dict.fromkeys(each.name for each in passes()))
    return [
        (name, suggest(name, known) or "'bolt-build plan' names passes that change something")
        for name in names
        if name not in known
    ]


def plugged_passes() -> Found[Pass]:
    """The passes of other packages (entry-point group `bolt_build.passes`), and what is wrong with some."""
    own = dict.fromkeys(each.name for each in PIPELINE)
    found = plugged(group="bolt_build.passes", own=own, check=is_a(Pass))
    wrong = {each.offer: reason for each in found.plugged if (reason := _misplaced(each, list(own))) is not None}
    return Found(
        tuple(each for each in found.plugged if each.offer not in wrong),
        (*found.problems, *(refused(offer, reason) for offer, reason in wrong.items())),
    )


def _misplaced(added: Plugged[Pass], own: list[str]) -> str | None:
    if added.thing.before not in own:
        return f"it asks to run before '{added.thing.before}'; there are {', '.join(own)}"
    return None


def _guarded(added: Plugged[Pass]) -> Pass:
    """The pass, whose calls say what package they are of where they fail."""
    each = added.thing
    return replace(
        each,
        rewrite=each.rewrite and guarded_call(added.offer, each.rewrite),
        in_fp16=each.in_fp16 and guarded_call(added.offer, each.in_fp16),
        by_padding=each.by_padding and guarded_call(added.offer, each.by_padding),
        by_fusion=each.by_fusion and guarded_call(added.offer, each.by_fusion),
    )


def optimize(graph: Graph, policy: Policy, target: Target | None = None, precision: str = "") -> PassResult:
    """All passes in order but for those that the policy skips, with the graph's invariants checked behind each; without
    a target those that pay everywhere.

    Raises InvariantError, naming the pass.
    """
    return _run(graph, policy, target, precision, passes())


def recognised(graph: Graph, policy: Policy, target: Target | None = None, precision: str = "") -> Graph:
    """The graph behind the passes up to that which recognises attention. Raises InvariantError as `optimize`."""
    ordered = passes()
    return _run(graph, policy, target, precision, ordered[: ordered.index(RECOGNISE_ATTENTION) + 1]).graph


def _run(graph: Graph, policy: Policy, target: Target | None, precision: str, ordered: tuple[Pass, ...]) -> PassResult:
    decisions: list[Decision] = []
    checked: Graph | None = None
    for each in ordered:
        if each.name in policy.skip:
            continue
        if each.pays_on is not None and (target is None or not each.pays_on(target, precision)):
            continue
        result = each.run(graph, policy, precision)
        try:
            invariants.check(result.graph, checked)
        except invariants.InvariantError as error:
            raise invariants.InvariantError(f"{graph.name} after {each.name}", error.violations) from error
        graph = checked = result.graph
        decisions += result.decisions
    return PassResult(graph, tuple(decisions))
