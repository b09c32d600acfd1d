"""Registered models, by the labels and features that they use."""

from dissensus.models import MODELS, model_class

#: models of nominal classes
OF_CLASSES = [name for name in MODELS if "nominal" in model_class(name)._label_types]
#: models that do not need features
FROM_LABELS_ALONE = [name for name in OF_CLASSES if model_class(name).uses_features is not True]
