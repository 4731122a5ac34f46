"""What the catalogue has of torchvision: by its names for models of images, of every pixel, and of videos."""

SMALLEST = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11", "vit_b_32",
    "wide_resnet50_2",
)  # fmt: skip
LARGER = (
    "mobilenet_v3_large", "resnet34", "resnet50", "resnet101", "resnet152", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3",
    "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "squeezenet1_0", "densenet169", "densenet201",
    "densenet161", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5",
    "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_m", "efficientnet_v2_l", "regnet_x_800mf",
    "regnet_x_1_6gf", "regnet_x_3_2gf", "regnet_x_8gf", "regnet_x_16gf", "regnet_y_800mf", "regnet_y_1_6gf",
    "regnet_y_3_2gf", "regnet_y_8gf", "regnet_y_16gf", "convnext_small", "convnext_base", "swin_s", "swin_b",
    "swin_v2_s", "swin_v2_b", "vit_b_16", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
    "resnext101_32x8d", "resnext101_64x4d", "wide_resnet101_2", "convnext_large", "vit_l_16", "vit_l_32",
    "regnet_x_32gf", "regnet_y_32gf", "regnet_y_128gf", "vit_h_14",
)  # fmt: skip
SEGMENTATION = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50")
LARGER_SEGMENTATION = ("deeplabv3_resnet50", "deeplabv3_resnet101", "fcn_resnet101")
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t")
