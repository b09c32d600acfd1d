"""The registered models, by what their classes say of the labels that they are for."""

from __future__ import annotations

from dissensus.models import MODELS, model_class

#: Models of classes in no order: any labels will do.
OF_CLASSES = [name for name in MODELS if "nominal" in model_class(name)._label_types]
#: Those that can do without features of the items.
FROM_LABELS_ALONE = [name for name in OF_CLASSES if model_class(name).uses_features is not True]
